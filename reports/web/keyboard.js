// The keyboard: a field, three suggestions, keys; and beside it the public model's suggestions, if the page holds that
// model. It stores and sends nothing.

const COUNT = 3;
const launch = JSON.parse(document.getElementById("launch").textContent);
const writing = openWriting(launch.rules, launch.usual);
const field = document.getElementById("field");
const strip = [...document.querySelectorAll("#strip button")];
const spoken = document.getElementById("spoken");
const speed = document.getElementById("speed");
const keys = document.getElementById("keys");
const PARTIAL = /[\p{L}\p{M}\p{N}'’-]*$/u;
const began = performance.now();
const runtime = openRuntime();
const ready = runtime.then(() => openModel(launch.words, "model", "counts"));
const twin = [...document.querySelectorAll("#twin span")];
// One after the other: the launched model answers first.
const publicly = twin.length ? ready.then(() => openModel(launch.words, "start", "")) : null;
const bares = launch.words.map(bare);

// Suggestions at the end of a text: next words, or completions of the word being typed.
async function suggest(text, count = COUNT, opened = ready) {
  const partial = text.match(PARTIAL)[0];
  const { words, begins } = writing.unfinished(text.slice(0, text.length - partial.length));
  const typed = writing.normalise(partial);
  const fits = (id) => launch.words[id].startsWith(typed) || bares[id].startsWith(typed);
  const model = await opened;
  const best = await model.best(words, count, typed ? fits : undefined);
  const capital = begins || /^'*\p{Lu}/u.test(partial);
  return best.map((word) => writing.shown(word, capital));
}

const before = () => field.value.slice(0, field.selectionStart);
const partial = () => before().match(PARTIAL)[0];

// Replaces the selection and a number of characters before it.
function put(text, over = 0) {
  field.setRangeText(text, field.selectionStart - over, field.selectionEnd, "end");
  field.dispatchEvent(new InputEvent("input"));
  field.scrollTop = field.scrollHeight;
}

let spaced = false;  // the space before the caret came with a suggestion: a full stop takes its place

function take(number) {
  const word = strip[number].dataset.word;
  if (!word) return false;
  put(`${word} `, partial().length);
  spaced = true;
  return true;
}

function type(sign) {
  if (spaced && /[.,!?]/.test(sign)) put(`${sign} `, 1);
  else put(sign);
}

function erase() {
  const selected = field.selectionStart !== field.selectionEnd;
  put("", selected ? 0 : (Array.from(before()).at(-1)?.length ?? 0));
}

// Without a model there are no suggestions; the page already shows the reason.
const update = () => refresh().catch(() => {});
let asked = 0, speaking = 0;
async function refresh() {
  const mine = (asked += 1);
  clearTimeout(speaking);
  const best = await suggest(before());
  if (mine !== asked) return;
  strip.forEach((button, number) => {
    const word = best[number] ?? "";
    button.dataset.word = word;
    button.querySelector("span").textContent = word;
    button.disabled = !word;
    button.classList.remove("taught");
  });
  speaking = setTimeout(() => (spoken.textContent = best.length ? `Suggestions: ${best.join(", ")}` : "No suggestion"), 700);
  const { times, median } = await ready;
  speed.textContent = `${median().toFixed(1)} ms a word (median of the last ${times.length})`;
  if (publicly) await compare(best, mine);
}

// Shows the public model's suggestions for the same text, and marks those of the launch that are not among them.
async function compare(best, mine) {
  document.getElementById("mirror").textContent = field.value || "\u00a0";
  const known = await suggest(before(), COUNT, publicly);
  if (mine !== asked) return;
  twin.forEach((place, number) => (place.textContent = known[number] ?? ""));
  strip.forEach((button, number) => button.classList.toggle("taught", best[number] !== undefined && !known.includes(best[number])));
}

// Letters are capitals at the start of a sentence and after the shift key.
let shifted = false;
function setShift(on) {
  shifted = on;
  keys.querySelector("[data-key=shift]")?.setAttribute("aria-pressed", String(on));
  for (const key of keys.querySelectorAll("[data-letter]")) {
    const letter = key.dataset.letter;
    key.textContent = on ? letter.toLocaleUpperCase(launch.locale) : letter;
  }
}

const press = {
  shift: () => setShift(!shifted),
  back: erase,
  clear: () => (field.select(), put("")),
};
keys.addEventListener("click", ({ target }) => {
  const key = target.closest("button");
  if (!key) return;
  if (key.dataset.key in press) press[key.dataset.key]();
  else type(key.dataset.letter ? key.textContent : key.dataset.key);
  field.focus();
});
strip.forEach((button, number) => button.addEventListener("click", () => (take(number), field.focus())));
// A tap does not take the focus from the field.
for (const place of [keys, strip[0].parentElement]) place.addEventListener("pointerdown", (event) => event.preventDefault());

let caret = 0;
field.addEventListener("input", () => {
  spaced = false;
  caret = field.selectionStart;
  setShift(!partial() && writing.unfinished(before()).begins);
  update();
});
field.addEventListener("beforeinput", (event) => {
  if (!spaced || !/^[.,!?]$/.test(event.data ?? "")) return;
  event.preventDefault();
  type(event.data);
});
field.addEventListener("keydown", (event) => {
  const plain = !event.ctrlKey && !event.altKey && !event.metaKey && !event.isComposing;
  const number = ["1", "2", "3"].indexOf(event.key);
  // A digit after a digit continues a number.
  if (plain && number >= 0 && !/\d$/.test(before()) && take(number)) event.preventDefault();
});
document.addEventListener("selectionchange", () => {
  if (document.activeElement === field && field.selectionStart !== caret) update();
  caret = field.selectionStart;
});

// Suggestions after the example openings.
for (const row of document.querySelectorAll("#after tbody tr")) {
  const opening = row.querySelector("button").textContent;
  const fill = async (best) => {
    best.forEach((word, number) => (row.cells[number + 1].textContent = word));
    const known = publicly ? await suggest(`${opening} `, COUNT, publicly) : best;
    best.forEach((word, number) => row.cells[number + 1].classList.toggle("taught", !known.includes(word)));
  };
  suggest(`${opening} `).then(fill).catch(() => {});
  row.querySelector("button").addEventListener("click", () => {
    field.select();
    put(`${writing.shown(opening, true)} `);
    field.focus();
  });
}

ready.then(
  () => (document.getElementById("loaded").textContent = `; ready after ${((performance.now() - began) / 1000).toFixed(1)}\u00a0s`),
  (error) => (speed.textContent = spoken.textContent = `This browser cannot run the model: ${error.message}`),
);
setShift(true);
field.focus({ preventScroll: true });
update();
// Globals for the console and for tests.
globalThis.tacit = { suggest, before: (text) => suggest(text, COUNT, publicly), sentences: writing.sentences, unfinished: writing.unfinished };
