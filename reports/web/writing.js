// Tokenises typed text and restores the capitals of words. The rules come from pretrain/text/tokenise.py, translated, and from
// truecase.json; the functions follow `unfinished` and `truecasing.shown` step by step.
// All files of this folder run as one module, in the order that reports/keyboard.py names.

function openWriting(rules, usual) {
  const pattern = (name, flags) => new RegExp(rules.patterns[name], flags);
  const [breaks, words, tokens, slanted] = ["breaks", "words", "tokens", "slanted"].map((name) => pattern(name, "gu"));
  const [mayBreak, mayBeMore, ends] = ["may_break", "may_be_more", "ends"].map((name) => pattern(name, "u"));
  const endHere = pattern("ends", "uy");
  const folds = new Map(Object.entries(rules.folds));
  const same = new Map(Object.entries(rules.same));
  const forms = new Map(Object.entries(usual).map(([word, [form]]) => [word, form]));

  function normalise(text) {
    const upright = text.replace(slanted, "$1");
    let plain = Array.from(upright, (sign) => folds.get(sign) ?? sign).join("").normalize("NFC");
    if (rules.dotted) plain = plain.replaceAll("I", "ı").replaceAll("İ", "i");
    return plain.toLowerCase().replaceAll("i\u0307", "i");
  }

  function sentences(text) {
    const cut = [];
    const broken = (found, ...more) => (more.at(-1).passed === undefined ? "\n" : found);
    for (const line of normalise(text).split("\n")) {
      const whole = mayBreak.test(line) ? line.replace(breaks, broken) : line;
      for (const span of whole.split(ends)) {
        const more = mayBeMore.test(span);
        let sentence = [];
        cut.push(sentence);
        for (const token of span.match(more ? tokens : words) ?? []) {
          const word = more ? (same.get(token) ?? token.replaceAll("\ufe0f", "")) : token;
          if (Array.from(word).length <= rules.longest) sentence.push(word);
          else cut.push((sentence = []));
        }
      }
    }
    return cut.filter((sentence) => sentence.length);
  }

  // Words of the current sentence, and whether the next word begins a sentence.
  function unfinished(text) {
    const words = sentences(`${text} a`).at(-1).slice(0, -1);
    const typed = text.replace(/[ \t"'”’»)]+$/u, "");
    endHere.lastIndex = Math.max(typed.length - 1, 0);
    return { words, begins: !words.length && (!typed || endHere.test(typed)) };
  }

  function shown(word, begins) {
    if (forms.has(word)) return forms.get(word);
    const [, quotes, rest] = word.match(/^('*)(.*)$/su);
    if (!begins || !rest) return word;
    const [letter, ...others] = rest;
    const [first, ...more] = rules.dotted && letter === "i" ? "İ" : letter.toUpperCase();
    return quotes + first + more.join("").toLowerCase() + others.join("");
  }

  return { normalise, sentences, unfinished, shown };
}

// A word without accents and apostrophes, as people type it in a hurry.
function bare(word) {
  return word.normalize("NFD").replace(/[\p{M}'’]/gu, "");
}
