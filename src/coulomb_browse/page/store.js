/** What the page knows: the index, the user's decisions, and facts about images as they are needed. */
import { getJson, getNumbers, post } from "./api.js";
import { byId, plural, toast } from "./dom.js";

export const index = {}; // the answer of /start
export const decided = { file: new Map(), correction: new Map(), label: new Map() }; // position → value
const listeners = new Set();
export const onDecision = (listener) => { listeners.add(listener); return () => listeners.delete(listener); };

export const load = async () => {
  Object.assign(index, await getJson("/start"));
  for (const [kind, values] of Object.entries(index.work.decided))
    for (const [position, value] of Object.entries(values)) decided[kind].set(Number(position), value);
  undoable(index.work.undoable);
};

const undoable = (n) => { byId("undo").disabled = n === 0; };
const told = (kind, values) => { const positions = Object.keys(values).map(Number); for (const listener of [...listeners]) listener(kind, positions); };
const apply = (kind, values) => {
  for (const [position, value] of Object.entries(values))
    if (value === null) decided[kind].delete(Number(position));
    else decided[kind].set(Number(position), value);
  told(kind, values);
};

let last = Promise.resolve(), unsaved = 0; // decisions are saved in their order
const inOrder = (work) => { last = last.then(work, work); return last; };

/** Saves decisions {position: value or null}: shown at once, taken back if they cannot be saved. */
export const decide = (kind, values) => {
  const before = Object.fromEntries(Object.keys(values).map((position) => [position, decided[kind].get(Number(position)) ?? null]));
  apply(kind, values);
  byId("saved").textContent = "Saving …";
  unsaved++;
  return inOrder(async () => {
    try {
      undoable((await post("/decide", { kind, set: values })).undoable);
      if (!--unsaved) byId("saved").textContent = "Saved";
    } catch (error) {
      unsaved--;
      apply(kind, before);
      byId("saved").textContent = "Not saved";
      toast(error.message);
    }
  });
};

export const undo = () => inOrder(async () => {
  try {
    const answer = await post("/undo", {});
    undoable(answer.undoable);
    if (answer.kind) apply(answer.kind, answer.set);
    byId("saved").textContent = answer.kind ? "Undone" : "Nothing to undo";
    return answer;
  } catch (error) {
    toast(error.message);
    return null;
  }
});

const rows = new Map(), waiting = new Map();
let asking = 0;
const MOST = 8000, AT_ONCE = 250;

/** Facts about an image, or undefined until `wantRows` has brought them. */
export const row = (position) => rows.get(position);

/** Resolves when facts about all `positions` are known. */
export const wantRows = (positions) => {
  const missing = positions.filter((position) => !rows.has(position));
  if (!missing.length) return Promise.resolve();
  const all = missing.map((position) => {
    if (!waiting.has(position)) {
      let go;
      const promise = new Promise((resolve) => { go = resolve; });
      waiting.set(position, { promise, go, asked: false });
    }
    return waiting.get(position).promise;
  });
  if (!asking) asking = setTimeout(ask, 15);
  return Promise.all(all);
};

const ask = async () => {
  asking = 0;
  const wanted = [...waiting].filter(([, one]) => !one.asked).slice(-AT_ONCE); // the newest first: what is on screen
  if (!wanted.length) return;
  for (const [, one] of wanted) one.asked = true;
  if ([...waiting].some(([, one]) => !one.asked)) asking = setTimeout(ask, 30);
  try {
    if (rows.size > MOST) for (const old of [...rows.keys()].slice(0, MOST / 2)) rows.delete(old);
    for (const one of await getJson(`/rows?at=${wanted.map(([position]) => position).join(",")}`)) rows.set(one.position, one);
  } catch (error) {
    toast(error.message);
  }
  for (const [position, one] of wanted) { waiting.delete(position); one.go(); }
};

const codes = new Map();
/** The group of every image in a grouping such as "label": an index into its names, −1 for none. */
export const groupsOf = async (name, fresh = false) => {
  if (fresh || !codes.has(name)) codes.set(name, await getNumbers(`/codes/${name}`));
  return codes.get(name);
};

export const thumbnail = (position) => `/thumbnail/${position}?v=${index.stamp}`;
export const picture = (position) => `/image/${position}?v=${index.stamp}`;
/** "3 images", or "3 texts". */
export const cells = (n) => plural(n, index.kind);
const SHORT = 80; // characters of a text in a name
/** The name of an image for people: its file name, and its label; of a text, its beginning. */
export const title = (position) => {
  const known = row(position);
  if (!known) return `${index.kind} ${position + 1}`;
  const name = known.text === undefined ? known.id : known.text.length > SHORT ? `${known.text.slice(0, SHORT)} …` : known.text;
  return known.label === null ? name : `${name}, ${known.label}`;
};
