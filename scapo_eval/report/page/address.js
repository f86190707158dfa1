// The address: its hash contains everything that a link must restore.

/** What every page goes by is part of every link. */
export const KEPT = ["baseline", "without"];

export const address = () => new URLSearchParams(location.hash.slice(1));
export function link(values) {
  const params = new URLSearchParams(),
    now = address();
  const all = { page: null, ...Object.fromEntries(KEPT.map((key) => [key, now.getAll(key)])), ...values };
  for (const [key, value] of Object.entries(all))
    for (const one of Array.isArray(value) ? value : [value])
      if (one !== "" && one !== null && one !== undefined && one !== false) params.append(key, one);
  return "#" + params;
}

/** A table's order as it stands in the address: the column's number, "-" before it for descending. */
export const orderText = ({ by, down }) => (by === null ? "" : (down ? "-" : "") + by);
export function orderFrom(text, usual) {
  const found = /^(-?)(\d+)$/.exec(text || "");
  return found ? { by: +found[2], down: found[1] === "-" } : { ...usual };
}
