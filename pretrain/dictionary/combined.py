"""The text form of a dictionary, as AOSP's ``CombinedInputOutput`` reads and keyboards' tools compile it.

dictionary=main:en_us,locale=en_US,description=English,date=1767323045,version=20260102
 word=see,f=150
  bigram=you,f=214
 word=you,f=171,possibly_offensive=true
"""

from pretrain.dictionary.content import Dictionary, Word

# Characters that would end a value early, or make AOSP misread the first line.
_BREAKS_HEADER = ",=:\r\n"
_FLAGS = ("not_a_word", "possibly_offensive")


def to_text(dictionary: Dictionary) -> str:
    """The file's content: words by falling frequency, then by code points.

    Raises:
      ValueError: an attribute with a character that the format cannot hold.
    """
    for name, value in dictionary.attributes.items():
        # The dictionary's own name is written as in main:en.
        text = value.replace(":", "", 1) if name == "dictionary" else value
        if not text or any(mark in name + text for mark in _BREAKS_HEADER):
            raise ValueError(
                f"attributes: {name}={value!r} is empty or holds one of , = : or a line break; rephrase it"
            )
    first = {"dictionary": dictionary.attributes["dictionary"]} | dictionary.attributes
    lines = [",".join(f"{name}={value}" for name, value in first.items())]
    for text, word in sorted(dictionary.words.items(), key=lambda item: (-item[1].frequency, item[0])):
        flags = "".join(f",{name}=true" for name in _FLAGS if getattr(word, name))
        lines.append(f" word={text},f={word.frequency}{flags}")
        lines += [f"  bigram={follower},f={frequency}" for follower, frequency in word.bigrams.items()]
    return "\n".join(lines) + "\n"


def from_text(content: str) -> Dictionary:
    """Read ``to_text``'s and published files; lines that begin with '#' and fields of no use here are passed over.

    Raises:
      ValueError: a line that is neither a word nor a bigram.
    """
    lines = [line.strip() for line in content.split("\n")]
    lines = [line for line in lines if line and not line.startswith("#")]
    if not lines:
        raise ValueError("combined: no line; the first one names the dictionary")
    words: dict[str, Word] = {}
    current: dict[str, int] = {}
    for line in lines[1:]:
        fields = _fields(line)
        if "word" in fields:
            current = {}
            flags = {name: fields.get(name, "").lower() == "true" for name in _FLAGS}
            words[fields["word"]] = Word(_number(line, fields), current, **flags)
        elif "bigram" in fields:
            current[fields["bigram"]] = _number(line, fields)
        else:
            raise ValueError(f"combined: {line!r} is neither a word nor a bigram; shortcuts are not read")
    return Dictionary(_fields(lines[0]), words)


def _fields(line: str) -> dict[str, str]:
    pairs = [part.strip().partition("=") for part in line.split(",")]
    if not all(equals for _, equals, _ in pairs):
        raise ValueError(f"combined: {line!r} has a part without '='; give name=value, separated by commas")
    return {name: value for name, _, value in pairs}


def _number(line: str, fields: dict[str, str]) -> int:
    if not fields.get("f", "").isdecimal():
        raise ValueError(f"combined: {line!r} has no frequency; add f=0 to f=255")
    return int(fields["f"])
