// Models as ONNX graphs, one word per step. onnxruntime-web runs in one thread, without a worker, and fetches nothing.

const BOS = 1, UNK = 3, SPECIALS = 4;

function bytesOf(id) {
  const binary = atob(document.getElementById(id).textContent);
  const bytes = new Uint8Array(binary.length);
  for (let place = 0; place < binary.length; place += 1) bytes[place] = binary.charCodeAt(place);
  return bytes;
}

async function unzipped(bytes) {
  const stream = new Response(bytes).body.pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

// The mean of the network's and the counts' probabilities, as ``mixed`` in pretrain/ngrams/counted.py.
function mixed(logits, counts) {
  const top = logits.reduce((most, value) => Math.max(most, value), -Infinity);
  const weights = Float64Array.from(logits, (value) => Math.exp(value - top));
  const total = weights.reduce((sum, value) => sum + value, 0);
  return weights.map((value, id) => (value / total + counts[id]) / 2);
}

async function openRuntime() {
  ort.env.wasm.wasmBinary = await unzipped(bytesOf("runtime"));
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.proxy = false;
}

// A graph and, if the page holds them, the counts that are mixed with it, by the names of their elements.
async function openModel(words, graph, beside) {
  const session = await ort.InferenceSession.create(bytesOf(graph), { executionProviders: ["wasm"], logSeverityLevel: 3 });
  const counts = document.getElementById(beside) ? await openCounts(bytesOf(beside)) : null;
  const index = new Map(words.map((word, id) => [word, id]));
  const width = Object.fromEntries(session.inputMetadata.map((input) => [input.name, input.shape?.at(-1)]));
  const zeros = (name) => new ort.Tensor("float32", new Float32Array(width[name]), [1, width[name]]);
  const begin = { next_cell: zeros("cell"), next_out: zeros("out") };
  const times = [];  // milliseconds of the last words

  async function step(token, before) {
    const fed = new ort.Tensor("int64", BigInt64Array.of(BigInt(token)), [1]);
    const start = performance.now();
    const made = await session.run({ token: fed, cell: before.next_cell, out: before.next_out });
    times.push(performance.now() - start);
    if (times.length > 200) times.shift();
    return { token, ...made };
  }

  // States after each token of the last text; the common prefix of two texts is run once.
  let path = [];
  async function run(sentence) {
    const tokens = [BOS, ...sentence.map((word) => index.get(word) ?? UNK)];
    let same = 0;
    while (same < tokens.length && path[same]?.token === tokens[same]) same += 1;
    path.length = same;
    for (const token of tokens.slice(same)) path.push(await step(token, path.at(-1) ?? begin));
    const logits = path.at(-1).logits.data;
    if (!counts) return logits;
    const start = performance.now(), likely = mixed(logits, counts(tokens));
    if (same < tokens.length) times[times.length - 1] += performance.now() - start;
    return likely;
  }

  let queue = Promise.resolve();
  // A score for every possible next word; a session runs one text at a time.
  const scores = (sentence) => (queue = queue.then(() => run(sentence)));

  // The likeliest words, ties in the order of the vocabulary.
  async function best(sentence, count, fits = () => true) {
    const likely = await scores(sentence);
    const ids = [];
    for (let id = SPECIALS; id < words.length; id += 1) if (fits(id)) ids.push(id);
    return ids.sort((a, b) => likely[b] - likely[a] || a - b).slice(0, count).map((id) => words[id]);
  }

  const median = () => times.toSorted((a, b) => a - b)[times.length >> 1];
  return { best, times, median };
}
