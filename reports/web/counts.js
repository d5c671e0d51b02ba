// Reads published counts (pretrain/ngrams/counted.py), a zip of plain arrays, and predicts from them.

async function inflated(bytes) {
  const stream = new Response(bytes).body.pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(stream).arrayBuffer();
}

// Numbers of one array, null for text; the 64-bit integers here fit into a float.
function numbersOf(buffer) {
  const begin = 10 + new DataView(buffer).getUint16(8, true);
  const head = new TextDecoder().decode(new Uint8Array(buffer, 10, begin - 10));
  if (head.includes("'<f8'")) return new Float64Array(buffer.slice(begin));
  if (head.includes("'<i8'")) return Float64Array.from(new BigInt64Array(buffer.slice(begin)), Number);
  return null;
}

async function arraysOf(bytes) {
  const view = new DataView(bytes.buffer), arrays = {};
  let end = bytes.length - 22;
  while (view.getUint32(end, true) !== 0x06054b50) end -= 1;
  let entry = view.getUint32(end + 16, true);
  for (let left = view.getUint16(end + 10, true); left > 0; left -= 1) {
    const named = entry + 46, length = view.getUint16(entry + 28, true), local = view.getUint32(entry + 42, true);
    const name = new TextDecoder().decode(bytes.subarray(named, named + length)).replace(/\.npy$/, "");
    const begin = local + 30 + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
    arrays[name] = numbersOf(await inflated(bytes.subarray(begin, begin + view.getUint32(entry + 20, true))));
    entry = named + length + view.getUint16(entry + 30, true) + view.getUint16(entry + 32, true);
  }
  return arrays;
}

// Index of the first key that is not below a number.
function lower(keys, wanted) {
  let low = 0, high = keys.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (keys[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

async function openCounts(bytes) {
  const arrays = await arraysOf(bytes), size = arrays.vocabulary_size[0], levels = [];
  for (let k = 1; arrays[`key_${k}`]; k += 1) {
    levels.push({ key: arrays[`key_${k}`], prob: arrays[`prob_${k}`], backoff: arrays[`backoff_${k}`] });
  }
  const find = (keys, wanted) => {
    const place = lower(keys, wanted);
    return keys[place] === wanted ? place : -1;
  };
  // Words that have a key after one context, with their indices.
  const run = (keys, context) => {
    const first = lower(keys, context * size), last = lower(keys, (context + 1) * size);
    return Array.from(keys.subarray(first, last), (key, place) => [key - context * size, first + place]);
  };

  // Probabilities of the public n-gram after a sentence's tokens.
  function publicly(tokens) {
    const prob = levels[0].prob.slice();
    for (let k = 2; k <= levels.length && k - 1 <= tokens.length; k += 1) {
      let context = tokens.at(1 - k);
      for (let place = k - 2; place > 0 && context >= 0; place -= 1) {
        context = find(levels[k - 1 - place].key, context * size + tokens.at(-place));
      }
      if (context < 0) continue;
      const backoff = levels[k - 2].backoff[context];
      for (let id = 0; id < size; id += 1) prob[id] *= backoff;
      for (const [id, place] of run(levels[k - 1].key, context)) prob[id] = levels[k - 1].prob[place];
    }
    return prob;
  }

  // Probabilities after a sentence's tokens, including its start token.
  return (tokens) => {
    const prob = publicly(tokens).map((value, id) => value * arrays.factor_V[id]);
    const total = prob.reduce((sum, value) => sum + value, 0);
    for (let id = 0; id < size; id += 1) prob[id] /= total;
    const row = arrays.row_V[tokens.at(-1)];
    if (row < 0) return prob;
    const trust = arrays.trust_K[row], pairs = run(arrays.key_G, row);
    const stored = pairs.map(([id]) => prob[id]), sum = (values) => values.reduce((left, right) => left + right, 0);
    const spare = Math.max(1 - sum(pairs.map(([, place]) => arrays.pair_G[place])), 0) / Math.max(1 - sum(stored), 1e-12);
    for (let id = 0; id < size; id += 1) prob[id] *= 1 - trust + trust * spare;
    pairs.forEach(([id, place], number) => (prob[id] = (1 - trust) * stored[number] + trust * arrays.pair_G[place]));
    return prob;
  };
}
