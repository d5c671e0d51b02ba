"""Check a launch's proof with Python's standard library alone, and no code of tacit.

    python check_proof.py PUBLIC SHA256

PUBLIC is the launch's folder public/, SHA256 the digest of the launch.pub that its owner publishes. It checks every
signature but that of model.sig (``model_signing verify key`` does), whose digest it holds against the signed Statement.
"""

import base64
import hashlib
import json
import sys
from functools import cache
from pathlib import Path

# The stages of a launch, and those whose products each may open: not the owner's to say.
STAGES = {
    "ingest_public": "",
    "ingest_private": "",
    "pretrain": "ingest_public",
    "plan": "ingest_private pretrain",
    "discover": "ingest_public ingest_private",
    "build_vocabulary": "ingest_public discover",
    "adapt": "ingest_public pretrain build_vocabulary",
    "count": "ingest_public ingest_private build_vocabulary plan",
    "fine_tune": "ingest_public ingest_private build_vocabulary adapt plan count",
    "audit": "ingest_public ingest_private plan build_vocabulary adapt fine_tune",
    "ab_test": "ingest_public ingest_private build_vocabulary adapt fine_tune plan count",
    "audit_releases": "ingest_private ingest_public plan discover build_vocabulary adapt fine_tune ab_test count",
    "decide": "discover fine_tune ingest_public ingest_private pretrain plan build_vocabulary adapt count "
    "audit ab_test audit_releases",
    "report": "ingest_public ingest_private pretrain discover build_vocabulary adapt fine_tune decide plan "
    "count audit ab_test audit_releases",
    "publish": "decide ingest_public ingest_private pretrain plan discover build_vocabulary adapt count "
    "fine_tune audit ab_test audit_releases report",
}
# Without these a launch is held; without the second ones it may be published, by its launch file's blocks.
EVIDENCE, OPTIONAL = ("audit", "ab_test", "audit_releases"), {"count": "counts"}
# Files of no stage, by folder.
BESIDE = {
    "launch": ("launch.json", "erased.json", "outcome.json", "state.svg"),
    "planning": ("frontier.png", "frontier.svg"),
    "proof": ("root.layout", "launch.pub", "log-keys.json", "provenance.json", "model.sig", "model.pub"),
}

# Ed25519, from its definition (RFC 8032, section 5.1): points (x, y) with -x^2 + y^2 = 1 + D x^2 y^2 modulo P.
P, ORDER = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P


def add(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    (x, y), (u, v) = one, other
    k = D * x * u * y * v % P
    return (x * v + u * y) * pow(1 + k, -1, P) % P, (y * v + x * u) * pow(1 - k, -1, P) % P


def times(number: int, point: tuple[int, int]) -> tuple[int, int]:
    total = (0, 1)
    while number:
        total = add(total, point) if number & 1 else total
        point, number = add(point, point), number >> 1
    return total


def decoded(content: bytes) -> tuple[int, int]:
    number = int.from_bytes(content, "little")
    sign, y = number >> 255, number % 2**255
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    root = pow(square, (P + 3) // 8, P)
    root = root if root * root % P == square else root * pow(2, (P - 1) // 4, P) % P
    require(root * root % P == square and y < P, "a point of a signature is on the curve")
    return (root if root % 2 == sign else P - root), y


def is_signed(key: bytes, message: bytes, signature: bytes) -> bool:
    if len(signature) != 64 or len(key) != 32 or times(8, decoded(key)) == (0, 1):
        return False
    base = decoded((4 * pow(5, -1, P) % P).to_bytes(32, "little"))
    hashed = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % ORDER
    s = int.from_bytes(signature[32:], "little")
    return s < ORDER and times(s, base) == add(decoded(signature[:32]), times(hashed, decoded(key)))


def require(condition: bool, what: str) -> None:
    if not condition:
        raise SystemExit(f"FAILED: not so: {what}")


def parsed(content: bytes) -> dict:
    """JSON without a key that stands twice, which other readers may take otherwise."""

    def once(pairs: list) -> dict:
        require(len(dict(pairs)) == len(pairs), f"no key stands twice: {[name for name, _ in pairs]}")
        return dict(pairs)

    return json.loads(content, object_pairs_hook=once)


def unbased(text: str) -> bytes:
    """Bytes of a text that is Base64 and nothing else."""
    content = base64.b64decode(text)
    require(base64.b64encode(content).decode() == text, "Base64 holds nothing beside its bytes")
    return content


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def payload(path: Path, key: bytes) -> dict:
    """Payload of a DSSE envelope that the key has signed."""
    require(path.is_file(), f"{path.name} is there")
    envelope = parsed(path.read_bytes())
    content, kind = unbased(envelope["payload"]), envelope["payloadType"].encode()
    message = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(content), content)
    signatures = (unbased(each["sig"]) for each in envelope["signatures"])
    require(any(is_signed(key, message, each) for each in signatures), f"{path.name} is signed by launch.pub")
    return parsed(content)


def obey(name: str, link: dict, links: dict) -> None:
    """Check that a stage opened the launch file, products of stages that it may open and a person's files, no more."""
    first = next(iter(links.values()))
    for path, hashes in link["materials"].items():
        stage = path.partition("/")[0]
        if path == "launch/config":
            same = first["materials"][path] == hashes
        elif stage == "given":
            same = name == "build_vocabulary"  # a blocklist, a sheet of reviewed words
        else:
            same = stage in STAGES[name].split() and links.get(stage, {"products": {}})["products"].get(path) == hashes
        require(same, f"{name} may open {path}, and opened it as it was written")
    wrong = [path for path in link["products"] if path.partition("/")[0] != name or ".." in path.split("/")]
    require("launch/config" in link["materials"] and not wrong, f"{name} wrote into its own folder alone: {wrong}")


def regular(public: Path) -> dict[str, Path]:
    """All files below a folder, by their paths; a symbolic link is refused."""
    paths = {path.relative_to(public).as_posix(): path for path in public.rglob("*")}
    odd = [name for name, path in paths.items() if path.is_symlink() or not (path.is_file() or path.is_dir())]
    require(not odd, f"all are files and folders, none of them a link: {', '.join(sorted(odd))}")
    return {name: path for name, path in paths.items() if path.is_file()}


def closed(names: set[str], links: dict, records: list[dict], link_names: dict) -> None:
    """Check that there is no file but those that the stages wrote, and those of a fixed list."""
    known = {name for link in links.values() for name in link["products"]}
    known |= {f"{stage}/{hidden}" for stage in links for hidden in (".content", ".processors")}
    known |= {f"{folder}/{name}" for folder, listed in BESIDE.items() for name in listed}
    known |= {f"proof/{name}" for name in link_names.values()}
    known |= {f"proof/{record['stage']}.{kind}.tlog-proof" for record in records for kind in record["ledger"]}
    # Evidence that failed may have left files, and the launch is held for that.
    left = {name for name in names - known if name.partition("/")[0] not in {*EVIDENCE} - links.keys()}
    require(not left, f"no file was added: {', '.join(sorted(left))}")


def stated(record: dict) -> str:
    """Digest of what a record states, without its times and receipts: the artifact STAGE/result."""
    result = {name: value for name, value in record["result"].items() if name != "curve"}
    content = {"stage": record["stage"], "outputs": record["outputs"], "result": result}
    return digest(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())


def parts(path: Path) -> tuple[bytes, str, list[str], str, str]:
    """Entry of a receipt, its place, the hashes beside it, the checkpoint and its signatures."""
    head, text, signatures = path.read_text(encoding="utf-8").split("\n\n")
    _, extra, index, *beside = (line.rpartition(" ")[2] for line in head.split("\n"))
    return unbased(extra), index, beside, text, signatures


def registered(proof: Path, keys: dict) -> list[str]:
    """Keys of the witness that the population was registered with, and those that the key before signed."""
    known = keys["witness"]
    for first in {parsed(parts(path)[0]).get("witness", "") for path in proof.glob("*.tlog-proof")} - {""}:
        trusted = {first}
        for each in keys["rotations"]:
            text, signed = f"tacit key witness {each['number']} {each['public']}", bytes.fromhex(each["signature"])
            if any(is_signed(bytes.fromhex(old), text.encode(), signed) for old in trusted):
                trusted.add(each["public"])
        known = [key for key in known if unbased(key.split("+", 2)[2])[1:].hex() in trusted]
        require(bool(known), f"the population was registered with the witness {first[:16]}, and its key is here")
    return known


def receipt(path: Path, keys: dict, wanted: str) -> dict:
    """Content of the ledger's entry with a hash, which stands in a log that a witness cosigned (C2SP: tlog-proof)."""
    require(path.is_file(), f"{path.name} is there")
    shown, index, beside, text, signatures = parts(path)
    require(digest(shown) == wanted, f"{path.name} is the entry that the record names")
    leaf = {"hash": wanted, "seq": parsed(shown)["seq"]}
    made = hashlib.sha256(b"\0" + json.dumps(leaf, sort_keys=True, separators=(",", ":")).encode()).digest()
    origin, size, root = text.split("\n")
    # RFC 9162, section 2.1.3.2
    at, last = int(index), int(size) - 1
    require(0 <= at <= last, f"{path.name} is in the tree")
    for each in map(unbased, beside):
        require(last > 0, f"{path.name} has no more hashes than its place in the tree")
        if at & 1 or at == last:
            made = hashlib.sha256(b"\1" + each + made).digest()
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            made = hashlib.sha256(b"\1" + made + each).digest()
        at, last = at >> 1, last >> 1
    require(last == 0 and made == unbased(root), f"{path.name} is in the tree of its checkpoint")
    require(is_noted(f"{text}\n", origin, signatures, tuple(keys["log"])), f"the log signed that of {path.name}")
    witnessed = is_noted(f"{text}\n", "tacit/witness", signatures, tuple(keys["witness"]))
    require(witnessed, f"the witness cosigned that of {path.name}")
    return parsed(shown)


@cache  # all receipts have one checkpoint
def is_noted(text: str, name: str, signatures: str, keys: tuple[str, ...]) -> bool:
    """True if a key of this name signed or cosigned a checkpoint (C2SP: signed-note, tlog-cosignature)."""
    for named, key_id, encoded in (key.split("+", 2) for key in keys):
        kind_and_key = unbased(encoded)
        for line in signatures.splitlines():
            _, signer, content = line.split(" ")
            signed, message = unbased(content), text.encode()
            if (named, signer, signed[:4].hex()) != (name, name, key_id):
                continue
            if kind_and_key[:1] == b"\4":
                message = b"cosignature/v1\ntime %d\n" % int.from_bytes(signed[4:12], "big") + message
            if is_signed(kind_and_key[1:], message, signed[4:] if kind_and_key[:1] != b"\4" else signed[12:]):
                return True
    return False


def account(proof: Path, record: dict, keys: dict, config: str) -> int:
    """Check the entries of the ledger that a record names, and return their number."""
    spend, receipts = record["result"].get("spend"), record["ledger"]
    needed = {"result"} | ({"reserve", "commit"} if spend else set())
    require(needed <= receipts.keys(), f"{record['stage']} names its entries of the ledger")
    for kind, wanted in receipts.items():
        path = proof / f"{record['stage']}.{kind}.tlog-proof"
        shown = receipt(path, keys, wanted)
        require(shown["kind"].partition(" ")[0] == kind, f"{path.name} is a {kind}")
        says = {"launch_id": record["launch_id"], "stage": record["stage"]}
        if kind == "result":
            stated = {name: value for name, value in record.items() if name != "ledger"}
            says["digest"] = digest(json.dumps(stated, sort_keys=True, separators=(",", ":")).encode())
        says |= {"config": config} if kind in ("reserve", "commit") else {}
        says |= {name: value for name, value in spend.items() if name != "note"} if kind == "commit" else {}
        wrong = [name for name, value in says.items() if shown.get(name) != value]
        require(not wrong, f"{path.name} says the same as the record of {', '.join(wrong)}")
    return len(receipts)


def main(public: Path, trusted: str) -> None:
    proof, pem = public / "proof", (public / "proof" / "launch.pub").read_bytes()
    require(digest(pem) == trusted.lower(), f"launch.pub, with SHA-256 {digest(pem)}, is the trusted one")
    key = unbased(b"".join(pem.splitlines()[1:-1]).decode())[-32:]
    files, layout = regular(public), payload(proof / "root.layout", key)
    link_names = {step["name"]: f"{step['name']}.{step['pubkeys'][0][:8]}.link" for step in layout["steps"]}
    require(link_names.keys() <= STAGES.keys(), f"{', '.join(link_names.keys() - STAGES.keys())} is no stage")
    links = {name: payload(proof / link_names[name], key) for name in STAGES if name in link_names}
    held = "decide" in links and parsed(files["decide/result.json"].read_bytes())["result"]["decision"] != "launch"
    may_lack = {"publish", *(EVIDENCE if held else ())}
    missing = STAGES.keys() - links.keys() - {*OPTIONAL}
    require(missing <= may_lack, f"no stage is left out: {', '.join(sorted(missing - may_lack))}")
    present = {name: {"sha256": digest(path.read_bytes())} for name, path in files.items()}
    keys, entries, records = payload(proof / "log-keys.json", key), 0, []
    keys["witness"] = registered(proof, keys)
    for name, link in links.items():
        require(link["name"] == name and not link["products"].keys() & link["materials"].keys(), f"{name} has its link")
        obey(name, link, links)
        record = parsed(files[f"{name}/result.json"].read_bytes())
        products = present | {f"{name}/result": {"sha256": stated(record)}}
        for product, hashes in link["products"].items():
            require(products.get(product) == hashes, f"{product} is as {name} wrote it")
        entries += account(proof, record, keys, link["materials"]["launch/config"]["sha256"])
        records.append(record)
    closed({*files}, links, records, link_names)
    print(f"{len(links)} stages: each opened products of stages that it may open; all files are as written")
    print(f"{entries} entries of the ledger stand in a log that the witness {' '.join(keys['witness'])} cosigned")

    stated_digest = parsed(files["report/result.json"].read_bytes())["result"]["disclosure_sha256"]
    require(present["report/disclosure.json"]["sha256"] == stated_digest, "disclosure.json is the report's")
    if "publish" not in links or not parsed(files["publish/result.json"].read_bytes())["result"]["published"]:
        print("no model is published")
        return
    statement, publish = payload(proof / "provenance.json", key), links["publish"]
    require(statement["_type"] == "https://in-toto.io/Statement/v1", "the Statement is one of version 1")
    require(statement["predicateType"] == "https://slsa.dev/provenance/v1", "it states a provenance")
    subjects = {each["name"]: each["digest"] for each in statement["subject"]}
    bundle = {name: hashes for name, hashes in publish["products"].items() if name.startswith("publish/bundle/")}
    require(subjects == bundle and "publish/bundle/disclosure.json" in subjects, "it is about the published bundle")
    built, ran = (statement["predicate"][part] for part in ("buildDefinition", "runDetails"))
    launch = {"sha256": digest(built["externalParameters"]["launch/config"].encode())}
    require(publish["materials"]["launch/config"] == launch, "its launch file is that of every stage")
    asked = parsed(built["externalParameters"]["launch/config"].encode())
    lost = [name for name, block in OPTIONAL.items() if asked[block] is not None and name not in links]
    require(not lost, f"no stage is left out: {', '.join(lost)}")
    named = {each["name"]: each["digest"] for each in built["resolvedDependencies"]}
    require(publish["materials"].items() <= named.items(), "its dependencies are what the publication opened")
    for each in ran["byproducts"]:
        require(present.get(each["name"]) == each["digest"], f"{each['name']} is the one that it names")
    print(f"a Statement about the {len(subjects)} files of the bundle of launch {ran['metadata']['invocationId']}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
