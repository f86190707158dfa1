// The address: everything that a link must bring back stands in the hash.

const KEPT = ["baseline", "without"]; // what every page goes by is part of every link

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
