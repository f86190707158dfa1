// Elements of the page: text enters as text nodes only. And the packed columns, unpacked.

const SVG = "http://www.w3.org/2000/svg";
/** @type {(id: string) => any} an element of whatever kind */
export const byId = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "css") for (const [k, v] of Object.entries(value)) node.style.setProperty(k, v);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}
export const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const draw = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~";

/** The bytes of a text in base85 (that of Python's base64.b85encode, with a comma for its less-than sign). */
function bytesOf(text) {
  const value = new Uint8Array(128),
    padding = (5 - (text.length % 5)) % 5,
    bytes = new Uint8Array((4 * (text.length + padding)) / 5);
  for (let k = 0; k < 85; k++) value[DIGITS.charCodeAt(k)] = k;
  for (let from = 0, to = 0; from < text.length; from += 5, to += 4) {
    let word = 0;
    for (let k = from; k < from + 5; k++) word = word * 85 + (k < text.length ? value[text.charCodeAt(k)] : 84);
    bytes[to] = word >>> 24;
    bytes[to + 1] = word >>> 16;
    bytes[to + 2] = word >>> 8;
    bytes[to + 3] = word;
  }
  return bytes.subarray(0, bytes.length - padding);
}

const streamOf = (name) => {
  const node = byId("data-" + name),
    packed = bytesOf(node.textContent);
  node.remove(); // unpacked once: the text need not stay in memory
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip")));
};
export const unpack = async (name) => JSON.parse(await streamOf(name).text());

/** Packed 32-bit floats: their first bytes come first, then their second ones... */
export async function unpackNumbers(name) {
  const bytes = new Uint8Array(await streamOf(name).arrayBuffer()),
    n = bytes.length / 4,
    whole = new Uint8Array(bytes.length);
  for (let b = 0; b < 4; b++) for (let k = 0; k < n; k++) whole[4 * k + b] = bytes[b * n + k];
  return new Float32Array(whole.buffer);
}

/** Draws a part of the page anew and gives the focus back to the control that had it. */
export function keepFocus(place, redraw) {
  const controls = () => [...place.querySelectorAll("button, select, input, a")];
  const at = controls().indexOf(document.activeElement);
  redraw();
  if (at >= 0) controls()[at]?.focus();
}
