// From a difference to the images or questions that make it: addresses of the Captions and Answers pages.

import { link } from "./address.js";
import { wellFormed } from "./format.js";

const OF_CAPTIONS = ["hal_rate", "cover_rate", "cap_score"];
const OF_ANSWERS = /(^|_)(accuracy|precision|recall|f1|mmhal_hal)$/;

let captioned = [], // names of the systems whose captions are at hand
  sliced = false, // whether the captions of all systems are at hand, with the slice of each
  answering = new Map(); // benchmark -> names of the systems whose answers are

export function nameEvidence(charts) {
  captioned = charts.captions;
  sliced = charts.sliced;
  answering = new Map(charts.answers);
}

/** Where the items lie that make the difference in a metric between two systems; null where they are not at hand. */
export function doorOf(argument, base, k, metric) {
  const [ours, theirs] = [k, base].map((at) => argument.systems[at].name);
  const both = (names) => names.includes(ours) && names.includes(theirs);
  if (argument.set === "capscore" && both(captioned) && OF_CAPTIONS.includes(metric))
    return pairLink(ours, theirs, { by: metric });
  const prefix = OF_ANSWERS.exec(metric);
  if (!prefix || !both(answering.get(argument.set) || [])) return null;
  const part = metric.slice(0, prefix.index);
  const shown = { set: argument.set, system: wellFormed(ours), first: wellFormed(theirs), outcome: "differs" };
  return link({ page: "answers", ...shown, part });
}

/** The captions of a slice: those in which two systems differ, or a system's; null where they are not at hand. */
export function sliceDoor(argument, base, k, metric, slice) {
  if (!sliced || argument.set !== "capscore") return null;
  const ours = argument.systems[k].name,
    part = { slice: wellFormed(slice) };
  if (base === null) return link({ page: "captions", system: wellFormed(ours), ...part });
  return OF_CAPTIONS.includes(metric) ? pairLink(ours, argument.systems[base].name, { by: metric, ...part }) : null;
}

/** The captions in which two systems differ, by a metric or by a label (by: see paired.js). */
export const pairLink = (ours, theirs, more) =>
  link({ page: "captions", system: wellFormed(ours), against: wellFormed(theirs), outcome: "differs", ...more });
