// Start: the head is there already; the charts next, captions last.

import "./copy.js";
import "./theme.js";
import { answersPage } from "./answers.js";
import { captionsPage } from "./captions.js";
import { nameEvidence } from "./doors.js";
import { claimsPage } from "./claims.js";
import { byId, unpack, unpackNumbers } from "./dom.js";
import { frontierPage } from "./frontier.js";
import { guardsPage } from "./guards.js";
import { kindsPage } from "./kinds.js";
import { joinedTable } from "./joined.js";
import { labelsPage } from "./labels.js";
import { overviewPage } from "./overview.js";
import { show } from "./pages.js";
import { scoresPage } from "./scores.js";
import { nameSystems } from "./systems.js";
import { nameVerdicts } from "./texts.js";
import { trainingPage } from "./training.js";

async function start() {
  show();
  const charts = await unpack("charts");
  nameSystems(charts.names);
  nameVerdicts(charts.verdicts);
  nameEvidence(charts);
  overviewPage(charts);
  scoresPage(charts);
  joinedTable();
  frontierPage(charts);
  if (charts.labels.length) {
    labelsPage(charts);
    guardsPage(charts);
  }
  if (charts.trained) trainingPage(await unpack("training"), await unpackNumbers("numbers"));
  show();
  await new Promise((done) => setTimeout(done)); // let the browser paint
  const pictures = await unpack("pictures");
  if (charts.labels.length) captionsPage(await unpack("captions"), pictures, await unpack("boxes"), document.title);
  if (charts.answers.length) answersPage(await unpack("answers"), pictures);
  if (charts.checked) kindsPage(await unpack("kinds"), pictures);
  if (charts.claimed) claimsPage(await unpack("claims"));
  performance.mark("ready");
  document.documentElement.dataset.ready = "yes";
}

function trouble(text) {
  byId("trouble").hidden = false;
  byId("trouble").textContent = text;
}

if (typeof DecompressionStream === "undefined") {
  trouble(
    "This browser cannot unpack the charts and captions (it lacks DecompressionStream); the scores below are complete.",
  );
} else {
  start().catch((error) => {
    trouble("The report could not be unpacked: " + error.message);
    throw error;
  });
}
