// What TypeScript cannot know of the pages' modules: uPlot is inlined before them, every element is HTML or SVG (both
// have what stands here), and events come from elements only.
declare const uPlot: any;
interface Element {
  dataset: DOMStringMap;
  hidden: boolean;
  disabled: boolean;
  hash: string;
  href: string;
  tBodies: HTMLCollectionOf<HTMLTableSectionElement>;
  focus(): void;
}
interface EventTarget {
  closest(selector: string): any;
  files: FileList;
}

// The rows of the pages' data, as report/overview.py, answers.py and html.py write them.
/** A metric of a benchmark. */
interface Metric {
  key: string;
  name: string;
  higher: boolean | null;
  plain: boolean;
  meaning: string;
}
/** A value with its 95 % interval. */
interface Value {
  value: number | null;
  low: number | null;
  high: number | null;
}
/** A system's difference to a baseline in one metric, and both values on the images that they share. */
interface Difference {
  difference: number | null;
  low: number | null;
  high: number | null;
  before: number | null;
  after: number | null;
  stars: string;
}
/** How much more often a system hallucinates a label than a baseline does. */
interface LabelChange {
  label: string;
  difference: number;
  tone: string;
  low?: number | null;
  high?: number | null;
}
/** A word by which captions name a label; label is a place in the vocabulary. */
interface SurfaceForm {
  surface: string;
  label: number;
  mentions: number;
  hallucinated: number;
  unknown: number;
  unclaimed: number;
}
/** A question of a benchmark, and a system's answer to it. */
interface Question {
  image: string | null;
  part: string;
  question: string;
  truth: string;
  content: string;
}
interface Answer {
  verdict: string;
  right: boolean | null;
  response: string;
  description: string;
  judgment: string;
}
/** A claim of a description with a judge's verdict. */
interface JudgedClaim {
  claim: string;
  true: boolean | null;
  descriptive: boolean;
  reference: string | null;
}
/** A claim of a caption with the scenes' verdict, and what they say. */
interface CheckedClaim {
  kind: string;
  start: number;
  end: number;
  said: string;
  use: string;
  verdict: string;
  evidence: string;
}
interface CheckedCaption {
  image: string;
  line: number;
  text: string;
  claims: CheckedClaim[];
}
/** A system's place in a plane of two metrics. */
interface PlanePoint {
  name: string;
  x: number;
  y: number;
  score: number;
  ellipse: [number, number][];
}
