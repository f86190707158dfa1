// Files that the page writes: nothing leaves the computer.

import { el } from "./dom.js";

export function saveFile(name, text, type) {
  const href = URL.createObjectURL(new Blob([text], { type }));
  el("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href));
}
