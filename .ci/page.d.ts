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
