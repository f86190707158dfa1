// Loads the page anew when its inputs have changed; the address keeps what the reader sees. Only in served pages.
"use strict";
(() => {
  const { state } = document.documentElement.dataset;
  setInterval(async () => {
    if (document.hidden) return;
    try {
      const answer = await fetch("state", { cache: "no-store" });
      if (answer.ok && (await answer.text()) !== state) location.reload();
    } catch {
      // the server has ended: the page stays as it is
    }
  }, 2000);
})();
