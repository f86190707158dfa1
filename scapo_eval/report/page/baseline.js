// The baseline that the reader chose, and what every system is therefore compared with.

import { address } from "./address.js";
import { wellFormed } from "./format.js";

/** The position of the chosen baseline among an argument's systems; -1 where none is chosen. */
export function chosenBaseline(argument) {
  const name = address().get("baseline");
  const at = name === null ? -1 : argument.systems.findIndex((s) => wellFormed(s.name) === name);
  return argument.against[at] ? at : -1;
}

/** Whether a system has been compared with a baseline: they share enough images. */
export const comparable = (argument, base, k) =>
  base !== k &&
  argument.against[base] &&
  argument.against[base][k] &&
  argument.against[base][k].verdict !== "not compared";

/** For every system the position of its baseline; its own where it is one. */
export function baselines(argument) {
  const chosen = chosenBaseline(argument);
  return argument.systems.map((_, k) => {
    if (k === chosen) return k;
    if (chosen >= 0 && comparable(argument, chosen, k)) return chosen;
    const natural = argument.natural[k];
    return argument.against[natural] ? natural : 0;
  });
}

/** Names of the systems that the reader has put aside. */
export const asideNames = () => new Set(address().getAll("without"));
export const isAside = (name, aside) => aside.has(wellFormed(name));
