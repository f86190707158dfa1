// What test_report_browser.py asks of a page: an object of functions that return plain values.
// oxlint-disable-next-line no-unused-vars -- read by the function that each test wraps around this text
const checks = {
  // Every visible text node against what is painted behind it: WCAG 2.2, 1.4.3 wants 4.5, large text 3.
  // Returns how many were checked, and those that fail by tag and class.
  contrast() {
    const rgba = (text) => {
      const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
      return text.startsWith("color(srgb") ? [255 * r, 255 * g, 255 * b, a] : [r, g, b, a];
    };
    const over = (a, b) => [0, 1, 2].map((k) => a[k] * a[3] + b[k] * (1 - a[3])).concat(1);
    const luminance = (color) => {
      const [r, g, b] = color.slice(0, 3).map((v) => {
        const share = v / 255;
        return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
      });
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (node) => {
      const stack = [];
      for (let n = node; n; n = n.parentElement) {
        stack.push(rgba(getComputedStyle(n).backgroundColor));
        if (stack[stack.length - 1][3] === 1) break;
      }
      return stack.reverse().reduce((below, above) => over(above, below), [255, 255, 255, 1]);
    };
    const unseen = ["SCRIPT", "STYLE", "TITLE", "title", "OPTION", "NOSCRIPT"];
    const failing = {};
    let checked = 0;
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const text = walker.currentNode,
        node = text.parentElement;
      if (!text.data.trim() || unseen.includes(node.tagName)) continue;
      if (!node.checkVisibility({ visibilityProperty: true })) continue;
      const style = getComputedStyle(node),
        size = parseFloat(style.fontSize);
      const large = size >= 24 || (+style.fontWeight >= 700 && size >= 18.66);
      const below = behind(node),
        above = over(rgba(node.ownerSVGElement ? style.fill : style.color), below);
      const [a, b] = [luminance(above), luminance(below)].sort((x, y) => y - x);
      const ratio = (a + 0.05) / (b + 0.05);
      checked++;
      if (ratio < (large ? 3 : 4.5)) {
        failing[`${node.tagName}.${node.getAttribute("class")}`] = [ratio.toFixed(2), text.data.slice(0, 30)];
      }
    }
    return [checked, failing];
  },

  // What can be operated and has no name, and ids that stand twice.
  names() {
    const named = (n) =>
      n.getAttribute("aria-label") ||
      n.textContent.trim() ||
      [...(n.labels || [])]
        .map((l) => l.textContent)
        .join("")
        .trim();
    const operable = [...document.querySelectorAll("button, a, input, select, [tabindex='0'], svg[role=img]")];
    const ids = [...document.querySelectorAll("[id]")].map((n) => n.id);
    return [
      operable.filter((n) => n.checkVisibility() && !named(n)).map((n) => n.outerHTML.slice(0, 80)),
      ids.filter((id, k) => ids.indexOf(id) !== k),
    ];
  },

  // The texts of the captions in view, without the rewards that stand between their pieces.
  texts() {
    const whole = (text) => [...text.querySelectorAll(".piece")].map((piece) => piece.textContent).join("");
    return [...document.querySelectorAll("#detail .text")].map(whole);
  },

  // Per caption in view, which labels it is marked with.
  marks() {
    const titles = (card) => [...card.querySelectorAll("mark:not(.v-not-counted)")].map((mark) => mark.title);
    return [...document.querySelectorAll("#detail .caption")].map((card) => [...new Set(titles(card))].sort().join());
  },

  // Texts of one chart that lie on one another, and cards that do.
  overlaps() {
    const out = [];
    const compare = (nodes) => {
      const boxes = nodes
        .map((node) => [node.getBoundingClientRect(), node])
        .filter(([box, node]) => box.width && node.checkVisibility());
      boxes.forEach(([a, one], k) => {
        for (const [b, other] of boxes.slice(0, k))
          if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1.5)
            if (Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3)
              out.push([one.textContent.slice(0, 30), other.textContent.slice(0, 30)]);
      });
    };
    for (const chart of document.querySelectorAll("svg.chart")) compare([...chart.querySelectorAll("text")]);
    compare([
      ...document.querySelectorAll("#overview .claims, #overview .plane, #overview .headline, #overview .note"),
    ]);
    compare([...document.querySelectorAll("#overview .claims li > *, #overview .headline > *")]);
    return out;
  },

  // Words, controls and pictures of a page that lie on one another, and words that break inside.
  boxes() {
    scrollTo({ top: 0, behavior: "instant" }); // what scrolls by lies under the head of the page
    const clipped = (rect, node) => {
      let { left, right, top, bottom } = rect;
      for (let n = node; n && n !== document.body; n = n.parentElement) {
        if (getComputedStyle(n).overflowX === "visible") continue;
        const frame = n.getBoundingClientRect();
        left = Math.max(left, frame.left);
        right = Math.min(right, frame.right);
        top = Math.max(top, frame.top);
        bottom = Math.min(bottom, frame.bottom);
      }
      return { left, right, top, bottom };
    };
    const found = [],
      broken = [];
    const add = (rect, node) => {
      const box = clipped(rect, node);
      if (box.right > box.left && box.bottom > box.top) found.push([box, node]);
    };
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const text = walker.currentNode,
        node = text.parentElement;
      if (!text.data.trim() || !node.checkVisibility({ visibilityProperty: true })) continue;
      if (node.closest("svg, script, option, datalist, .unseen, .skip")) continue;
      const range = document.createRange();
      range.selectNodeContents(text);
      for (const rect of range.getClientRects()) add(rect, node);
      if (!node.closest("th, td, nav, button, label, h2, h3, summary")) continue;
      for (const word of text.data.matchAll(/[\p{L}]+/gu)) {
        range.setStart(text, word.index);
        range.setEnd(text, word.index + word[0].length);
        if (new Set([...range.getClientRects()].map((rect) => Math.round(rect.top))).size > 1) broken.push(word[0]);
      }
    }
    for (const node of document.querySelectorAll("button, input, select, img"))
      if (node.checkVisibility({ visibilityProperty: true })) add(node.getBoundingClientRect(), node);
    found.sort((a, b) => a[0].top - b[0].top);
    const out = [];
    found.forEach(([a, one], k) => {
      for (let j = k + 1; j < found.length && found[j][0].top < a.bottom - 3; j++) {
        const [b, other] = found[j];
        if (one.contains(other) || other.contains(one)) continue;
        if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 && Math.min(a.bottom, b.bottom) - b.top > 3)
          out.push([one.textContent.slice(0, 30) || one.name, other.textContent.slice(0, 30) || other.name]);
      }
    });
    return [out, broken];
  },

  // Texts of a picture that stick out of it.
  outside() {
    const out = [];
    for (const text of document.querySelectorAll("svg text")) {
      const t = text.getBoundingClientRect(),
        s = text.ownerSVGElement.getBoundingClientRect();
      if (t.left < s.left - 1 || t.right > s.right + 1 || t.top < s.top - 1 || t.bottom > s.bottom + 1)
        out.push(text.textContent);
    }
    return out;
  },
};
