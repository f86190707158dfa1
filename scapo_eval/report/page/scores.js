// The Scores page: its tables are in the file already; their swatches take the systems' colors.

import { colorOf } from "./systems.js";

export function scoresPage() {
  for (const node of document.querySelectorAll("[data-system]")) node.style.background = colorOf(node.dataset.system);
}
