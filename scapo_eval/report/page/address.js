// The address: everything that a link must bring back stands in the hash.

import { wellFormed } from "./format.js";

export const address = () => new URLSearchParams(location.hash.slice(1));
export function link(values) {
  const params = new URLSearchParams();
  for (const [key, value] of Object.entries(values))
    if (value !== "" && value !== null && value !== undefined && value !== false) params.set(key, value);
  return "#" + params;
}

/** A table's order as it stands in the address: the column's number, "-" before it for descending. */
export const orderText = ({ by, down }) => (by === null ? "" : (down ? "-" : "") + by);
export function orderFrom(text, usual) {
  const found = /^(-?)(\d+)$/.exec(text || "");
  return found ? { by: +found[2], down: found[1] === "-" } : { ...usual };
}

/** Systems that the address hides, of all; and how it names them. */
export const namesText = (names) => names.map(wellFormed).join(",");
export const namesFrom = (text, all) =>
  new Set(all.filter((name) => `,${text || ""},`.includes(`,${wellFormed(name)},`)));
