// Light or dark: the reader's system decides until the button does. Paper is light and shows everything.

import { byId } from "./dom.js";
import { drawAll } from "./pages.js";

const dark = matchMedia("(prefers-color-scheme: dark)");
let theme = null;
const paintTheme = () => {
  document.documentElement.dataset.theme = theme || (dark.matches ? "dark" : "light");
  document.dispatchEvent(new Event("themepainted")); // for what holds colors of its own
};
paintTheme();
dark.addEventListener("change", paintTheme);
byId("theme").addEventListener("click", () => {
  theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  paintTheme();
});
addEventListener("beforeprint", () => {
  document.documentElement.dataset.theme = "light";
  document.dispatchEvent(new Event("themepainted"));
  for (const details of document.querySelectorAll("details")) details.open = true;
  drawAll();
});
addEventListener("afterprint", paintTheme);
