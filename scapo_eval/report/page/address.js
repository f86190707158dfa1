// The address: everything that a link must bring back stands in the hash.

export const address = () => new URLSearchParams(location.hash.slice(1));
export function link(values) {
  const params = new URLSearchParams();
  for (const [key, value] of Object.entries(values))
    if (value !== "" && value !== null && value !== undefined && value !== false) params.set(key, value);
  return "#" + params;
}
