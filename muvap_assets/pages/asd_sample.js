
"use strict";
// Works on the JSON of the element `data`. Times are whole ticks from the sample's begin; frames are found by integers alone.
(() => {
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("data").textContent);
  const main = document.querySelector("main");
  const scrubber = byId("scrubber");
  const audio = document.querySelector("audio");
  const strip = byId("strip");
  const first = Number(scrubber.min);
  const last = Number(scrubber.max);
  const ticksASecond = data.ticksASecond;
  const native = { fps: data.fps.map(BigInt), first: data.firstFrame };
  const model = { fps: data.modelFps.map(BigInt), first: data.firstModel };

  const frameAt = (tick, { fps: [top, bottom] }) => Number((BigInt(tick) * top) / (BigInt(ticksASecond) * bottom));
  // the first tick at or after a frame's centre
  const centreOf = (frame, { fps: [top, bottom] }) => {
    const scale = 2n * top;
    return Number(((2n * BigInt(frame) + 1n) * bottom * BigInt(ticksASecond) + scale - 1n) / scale);
  };
  const spoken = (mark) => (mark === "1" ? "speaking" : "not speaking");

  const sheets = data.sheets.map((uri) => {
    const image = new Image();
    image.src = uri;
    return image;
  });

  function draw(context, frame, x, y, width, height) {
    const place = frame - data.firstFrame;
    const sheet = sheets[Math.floor(place / data.facesASheet)];
    const faceHeight = byId("face-native").height;
    const row = (place % data.facesASheet) * faceHeight;
    context.drawImage(sheet, 0, row, sheet.naturalWidth, faceHeight, x, y, width, height);
  }

  function drawFace(canvas, frame) {
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.clearRect(0, 0, canvas.width, canvas.height);
    if (frame !== null) draw(context, frame, 0, 0, canvas.width, canvas.height);
  }

  function drawStrip() {
    const face = byId("face-native");
    const density = window.devicePixelRatio || 1;
    strip.width = Math.round(strip.clientWidth * density);
    strip.height = Math.round(strip.clientHeight * density);
    const count = Math.max(1, Math.floor(strip.width / ((strip.height * face.width) / face.height + density)));
    const context = strip.getContext("2d");
    for (let number = 0; number < count; number += 1) {
      const tick = first + Math.floor(((last - first) * (2 * number + 1)) / (2 * count));
      const height = strip.height;
      const width = Math.min((height * face.width) / face.height, strip.width / count);
      draw(context, frameAt(tick, native), ((number + 0.5) * strip.width) / count - width / 2, 0, width, height);
    }
  }

  function show(tick) {
    scrubber.value = String(tick);
    const frame = frameAt(tick, native);
    const modelFrame = frameAt(tick, model);
    const place = modelFrame - model.first;
    const whole = place < data.shows.length;
    const shows = whole ? data.shows[place] : null;
    const label = data.labels === null ? "not known" : spoken(data.labels[frame - data.firstFrame]);
    const modelLabel = data.labels === null ? "not known" : whole ? spoken(data.labels[shows - data.firstFrame]) : "none";
    const bins = whole && data.targets ? data.targets[place] : null;
    const seconds = (Math.floor((1000 * tick) / ticksASecond) / 1000).toFixed(3);
    byId("time").textContent = `${seconds} s`;
    byId("native-frame").textContent = String(frame);
    byId("native-label").textContent = label;
    byId("model-frame").textContent = whole ? String(modelFrame) : "none: past the last whole one";
    byId("model-shows").textContent = whole ? String(shows) : "none";
    byId("model-label").textContent = modelLabel;
    byId("targets").textContent = bins ? `${bins.slice(0, data.pastBins)} | ${bins.slice(data.pastBins)}` : "none";
    byId("about-native").textContent = `native frame ${frame}, ${label}`;
    byId("about-model").textContent = whole ? `native frame ${shows}, ${modelLabel}` : "none";
    byId("native-label").dataset.speaking = String(label === "speaking");
    byId("model-label").dataset.speaking = String(modelLabel === "speaking");
    drawFace(byId("face-native"), frame);
    drawFace(byId("face-model"), shows);
    byId("cursor").style.left = `${(100 * (tick - first)) / Math.max(1, last - first)}%`;
    const said = whole ? `model frame ${modelFrame}` : "no model frame";
    scrubber.setAttribute("aria-valuetext", `${seconds} seconds, native frame ${frame}, ${label}, ${said}`);
  }

  const within = (tick) => Math.min(last, Math.max(first, tick));
  const tickOfSound = () => within(Math.floor((data.audioStartSec + audio.currentTime) * ticksASecond));
  let sought = null;

  function goTo(tick) {
    show(within(tick));
    sought = Math.max(0, Number(scrubber.value) / ticksASecond - data.audioStartSec);
    audio.currentTime = sought;
  }

  function step(timeline, by) {
    goTo(centreOf(Math.max(0, frameAt(Number(scrubber.value), timeline) + by), timeline));
  }

  function follow() {
    show(tickOfSound());
    if (!audio.paused && !audio.ended) requestAnimationFrame(follow);
  }

  const keys = {
    ArrowRight: () => step(native, 1),
    ArrowUp: () => step(native, 1),
    ArrowLeft: () => step(native, -1),
    ArrowDown: () => step(native, -1),
    PageUp: () => step(model, 1),
    PageDown: () => step(model, -1),
    Home: () => goTo(first),
    End: () => goTo(last),
    // a play that is stopped before it began is refused by the browser, and needs no word
    " ": () => (audio.paused ? audio.play().catch(() => {}) : audio.pause()),
  };

  scrubber.addEventListener("input", () => goTo(Number(scrubber.value)));
  scrubber.addEventListener("keydown", (event) => {
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });
  audio.addEventListener("play", () => requestAnimationFrame(follow));
  audio.addEventListener("ended", follow);
  // A place somebody chose in the player itself; what goTo asked for is shown already, and more exactly.
  audio.addEventListener("seeking", () => {
    if (sought === null || Math.abs(audio.currentTime - sought) > 0.001) show(tickOfSound());
    sought = null;
  });
  document.querySelector(".timeline").addEventListener("pointerdown", (event) => {
    const lane = event.target.closest(".lane");
    if (!lane) return;
    event.preventDefault();
    const box = lane.getBoundingClientRect();
    goTo(first + Math.round(((event.clientX - box.left) / box.width) * (last - first)));
    scrubber.focus();
  });
  window.addEventListener("resize", drawStrip);

  Promise.all(sheets.map((sheet) => sheet.decode())).then(() => {
    drawStrip();
    show(first);
    main.removeAttribute("aria-busy");
  });
})();
