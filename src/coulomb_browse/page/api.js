/** Questions to the server of this page. All errors are one sentence. */
const answered = async (path, options) => {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...options });
  } catch {
    throw new Error("The server does not answer: coulomb browse was stopped. Start it again and open its new address.");
  }
  if (response.ok) return response;
  const text = await response.text();
  let reason = text;
  try { reason = JSON.parse(text).error; } catch { /* a refusal is plain text */ }
  throw new Error(reason || `The server answers ${response.status}.`);
};

export const getJson = async (path, signal) => (await answered(path, { signal })).json();
export const getNumbers = async (path, Kind = Int32Array, signal) => new Kind(await (await answered(path, { signal })).arrayBuffer());
export const post = async (path, content) => (await answered(path, {
  method: "POST", body: JSON.stringify(content), headers: { "Content-Type": "application/json" },
})).json();
export const upload = async (file) => (await (await answered("/upload", {
  method: "POST", body: file, headers: { "Content-Type": "application/octet-stream" },
})).json()).upload;

const pause = (ms) => new Promise((go) => setTimeout(go, ms));

/** Waits for an answer that takes a while; `progress(status)` is called on the way. `signal` stops waiting, not the work. */
export const job = async (name, options, progress, signal) => {
  for (let wait = 40; ; wait = Math.min(400, wait * 1.5)) {
    const status = await post(`/job/${name}`, options);
    if (signal?.aborted) return null;
    if (status.state === "done") return status.answer;
    if (status.state === "failed") throw new Error(status.note);
    progress?.(status);
    await pause(wait);
    if (signal?.aborted) return null;
  }
};
