// A page whose list depends on a form. The address contains the choices.

import { address } from "./address.js";
import { byId } from "./dom.js";
import { addPage, remember, shown } from "./pages.js";

/**
 * Registers a page with the form NAME-controls and the button NAME-more. settings: names of the form's fields; filter:
 * draws the list anew; more: draws more of it.
 */
export function filteredPage(name, settings, filter, more) {
  const form = byId(name + "-controls"),
    f = form.elements;
  const changed = () => {
    filter();
    remember(
      Object.fromEntries(
        settings.map((key) => [key, key === "system" && f.system.selectedIndex === 0 ? "" : f[key].value]),
      ),
    );
  };
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", changed);
  form.addEventListener("reset", () => setTimeout(changed));
  byId(name + "-more").addEventListener("click", more);
  const arrive = () => {
    for (const key of settings) {
      const value = address().get(key) || "";
      if (key === "text" || [...f[key].options].some((option) => option.value === value)) f[key].value = value;
      else f[key].selectedIndex = 0;
    }
    filter();
  };
  addPage(name, { arrive });
  if (shown === name) arrive();
}
