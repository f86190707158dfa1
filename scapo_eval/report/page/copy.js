// Buttons that copy what stands beside them.

document.addEventListener("click", async (event) => {
  const button = event.target.closest(".copy");
  if (!button) return;
  const code = button.parentElement.querySelector("code");
  const text = button.dataset.text || code.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    // no permission: select it, so that the reader can copy
    if (code) getSelection().selectAllChildren(code);
    button.textContent = code ? "Selected" : "Not allowed";
  }
  setTimeout(() => {
    button.textContent = "Copy";
  }, 1500);
});
