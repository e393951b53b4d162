/** Thumbnails of the grid: many with one request, kept as long as they are among those shown last. */
import { getNumbers } from "./api.js";
import { thumbnail } from "./store.js";

const MOST = 4000, AT_ONCE = 64;
const known = new Map(); // position → address in memory, the one shown last at the end
const coming = new Map(); // position → promise

/** The address of a thumbnail in memory, or undefined. */
export const kept = (position) => {
  const address = known.get(position);
  if (address !== undefined) { known.delete(position); known.set(position, address); }
  return address;
};

/** Calls `give(position, address)` for each of the positions, as they arrive. */
export const fetchThumbnails = (positions, give) => {
  const missing = [];
  for (const position of positions) {
    const address = kept(position);
    if (address !== undefined) give(position, address);
    else if (coming.has(position)) coming.get(position).then(() => give(position, kept(position) ?? thumbnail(position)));
    else missing.push(position);
  }
  for (let at = 0; at < missing.length; at += AT_ONCE) {
    const some = missing.slice(at, at + AT_ONCE), batch = bring(some);
    for (const position of some) { coming.set(position, batch); batch.then(() => give(position, kept(position) ?? thumbnail(position))); }
  }
};

/** Lengths as uint32, then the JPEG files one after the other. */
const bring = async (positions) => {
  try {
    const bytes = await getNumbers(`/thumbnails?at=${positions.join(",")}`, Uint8Array), head = new Uint32Array(bytes.buffer, 0, positions.length);
    let from = 4 * positions.length;
    positions.forEach((position, at) => {
      known.set(position, URL.createObjectURL(new Blob([bytes.subarray(from, from + head[at])], { type: "image/jpeg" })));
      from += head[at];
    });
    for (const [old, address] of known) {
      if (known.size <= MOST) break;
      URL.revokeObjectURL(address);
      known.delete(old);
    }
  } catch { /* each is then asked for alone, and shown as missing if that fails, too */ }
  for (const position of positions) coming.delete(position);
};
