// Loads the page anew when the server holds another one; the address keeps what the reader sees. Only in served pages.
"use strict";
(() => {
  const { state } = document.documentElement.dataset;
  const ask = async () => {
    try {
      const answer = document.hidden ? null : await fetch("state", { cache: "no-store" });
      if (answer?.ok && (await answer.text()) !== state) location.reload();
    } catch {
      // the server has ended: the page stays as it is
    }
    setTimeout(ask, 2000);
  };
  setTimeout(ask, 2000);
})();
