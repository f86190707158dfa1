"""Selection of the 894 aliases of `dopa160` by counts over real captions, and their coverage of a model that was
excluded.

    python benchmarks/spend_aliases.py [--write]

The pool contains MORE and all aliases of the shipped vocabularies. Each alias is assigned to the label of `dopa160`
that shares the most aliases with its own label (PLACES lists the labels without common aliases). The words of the pool
compete for the places that are not KEPT. The score of a word is its number of mentions per caption under the reading
`visual` (at most three per caption), averaged over lists of images. Each list is weighted by the square root of its
size, and the recent models together have half of the weight. (With a fifth to four fifths, the coverage of an excluded
model is the same.) A word in a single caption has a twentieth of this score, and a plural has at least a tenth of its
singular's score. If the last words of a compound are an alias of the same label, they match the compound, so its
mentions count for them. (rules.yaml specifies that "tennis court" is not tennis.)

Prints the coverage of the annotated captions of each recent model, for the current list and for words that are counted
without this model's captions. The pool and the rules were made with knowledge of these captions, but the selection was
not. ``--write`` writes the selection to vocab/dopa160.yaml, based on all captions except those of gold/held_out*.jsonl.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import tempfile
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path

from matcher_quality import DATA, GOLD, QUALITY, captions_of, judge, measure, model_of, percent, read_gold

from scapo_eval.matching.context import noun_behind
from scapo_eval.matching.matcher import AliasMatcher
from scapo_eval.matching.uses import LEFT_OUT
from scapo_eval.matching.vocabulary import Vocabulary, tokenize_alias

NAME, SIZE = "dopa160", 894
FILE = Path(__file__).resolve().parent.parent / "vocab" / f"{NAME}.yaml"
RECENT = {
    "GPT-4o": "captions_modern/comprecap_gpt4o.jsonl",
    "LLaVA-NeXT-34B": "captions_modern/comprecap_llava_next_34b.jsonl",
    "Qwen3-VL-4B": "captions_real/mmhal_bench_qwen3vl4b.jsonl",
}
OLDER = (
    ("captions_real/coco_val2014_lessismore_*.jsonl",),
    ("captions_real/coco_val2014_opera_*.jsonl", "coco_chair/captions/*.jsonl"),
    ("amber/responses/gen_llava_base.json.gz", "amber/responses/gen_instructblip_agla_small.json.gz"),
)
"""Files with one list of images each, so that no image has a higher weight because of several descriptions."""
OLDER_SHARE = 1 / 2
AT_MOST = 3
PLURAL = 1 / 10

KEPT = """
    stool stools armchair armchairs ottoman ottomans seat seats pew pews bleachers sofa sofas loveseat loveseats booklet
    booklets brochure brochures poster posters painting paintings hair_dryer street_light
"""
"""Aliases in the paper, and two spellings. Each label that is its own alias is also kept."""

PLACES = {
    "animal": "donkey camel pig squirrel fox rhinoceros whale turtle crab herd",
    "vehicle": "tractor helicopter stroller wheelchair sled",
    "device": "tablet;screen;printer;music player;charger;radiator;fan;dishwasher;blender;grill",
    "box": "trash can;mailbox;barrel;gift",
    "bed": "crib;headboard",
    "clothing": "costume;apron;underwear;mask",
    "building": "castle;gas station;stadium;stall;market;tent;column",
    "utensil": "cutting board;tool;shaker",
    "bottle": "jar",
    "fence": "net",
    "vegetable": "pepper",
    "food": "butter",
    "water": "fountain;rain",
    "sign": "logo;flag;sticker;traffic cone",
    "toy": "balloon;dinosaur",
    "lamp": "candle",
    "park": "playground;racetrack",
    "court": "rink",
    "floor": "tile;deck",
    "blanket": "fabric",
    "towel": "toilet paper",
    "sky": "sun;moon",
    "snow": "ice",
    "bridge": "tunnel",
}
"""Labels of `open400` without common aliases with `dopa160`, and the labels to which they are assigned."""

MORE = {
    "person": "bride;groom;participant;participants;motorcyclist;motorcyclists;soldier;soldiers;jockey;attendant",
    "animal": "donkeys;pets;livestock;cub",
    "sheep": "ram;rams;lamb;lambs",
    "cow": "bull;bulls;calves",
    "cat": "tabby;tabbies",
    "bag": "briefcase;tote bag;backpacks",
    "bed": "bunk;bunks;bunk bed;bassinet;cribs",
    "building": "city;cities;shopping center;business;businesses;cabin;hut;gazebo;skyscraper",
    "clothing": "wetsuit;wetsuits;suits;apron;aprons;sock;onesie;costume",
    "device": "imac;imacs;washing machine;dryer;washer;console;video game;equipment;machine",
    "jewelry": "ring;rings;wedding band",
    "meat": "oyster;oysters;salmon;bacon;ham;chicken breast;fillet;fillets",
    "bread": "roll;rolls;buns;bao;baozi;crust;dough",
    "food": "treat;treats;garnish;filling;seasoning",
    "fruit": "kiwi;kiwis;melon;berry;berries",
    "vegetable": "eggplant;eggplants;asparagus;spinach;greens;bell pepper;bell peppers",
    "utensil": "tongs;cutting board;cutting boards;tool;tools",
    "fence": "fencing;barriers;gates;guardrail;handrail",
    "sidewalk": "cobblestone;cobblestones;curbs",
    "lamp": "bulb;lampshade;lamppost;lampposts;sconce;lighting fixture",
    "plant": "hedge;hedges;thicket;weeds;stem;stems;underbrush",
    "flower": "sunflower;sunflowers;wildflower;wildflowers;blossom;blossoms;petal;rose",
    "room": "patio;corridor;apartment;hall;living room;living rooms;cafe",
    "ground": "earth;mulch;mud;clay",
    "water": "puddle;puddles;canal;bay;waterfall;ocean water",
    "rock": "pebbles;rocky terrain;stone",
    "beach": "coast;coastline;riverbank;bank",
    "mountain": "mountain range;mountain ranges;peak;cliffs",
    "field": "plain;plains;outfield;infield;pasture;meadow;farmland;pitch",
    "street": "alley;lanes;driveway",
    "park": "reserve;playground;courtyard",
    "runway": "taxiway;taxiways;airstrip",
    "railroad track": "rails;railway;railways",
    "cloud": "smoke",
    "sky": "sun;sunlight",
    "stairs": "step;ladder;staircase;stairway;ramp;ramps",
    "window": "windowsill;window sill",
    "roof": "canopy;canopies;awning;awnings",
    "door": "doorframe;arch;arches",
    "shirt": "sweatshirt;sweatshirts;polo;sleeves",
    "jacket": "blazer;blazers;cardigan;robe",
    "shoe": "boot;sandal;footwear;heels",
    "hat": "helmet liner;beanies;cowboy hats",
    "glasses": "eyeglasses;eyewear",
    "box": "trash can;trash cans;bin;bins;trash bin;crates;planter;planters;cardboard box",
    "picture": "illustration;drawing;artwork;mural;photographs",
    "sign": "label;labels;plaque;sticker;stickers;flag;flags;traffic cone;traffic cones;placard",
    "statue": "bust;figures;monument",
}
"""Additional common words."""


STRUCK = """
    adjusting ads adult aircrafts another_figure arch arches artwork artwork_piece badge bank bay bonnet
    bow breakfast brick bricks bull business businesses butter cab cage candles cardinal carvings central_figure
    clay clock_face clock_faces cloth collar color condensation condiment condiments cones console costume cover
    crest crust diamond diamond_ring discs document dough drawing dryer emblem equipment fabric fan figures filling
    five_figures flip flock four_figures freight_cars garnish gates gear gift glass_of glasses_of grain greens grill
    groom heels herd hook human humans ice iguana ipod kiwi label labels ladder lens light_source liquid log logo
    logos logs machine magnets main_characters mask moon net notepad occupants one_ski packaging paper papers pen
    peoples pitch plain pointer port portrait ports racetrack radiator railway rain ramp ramps red_light robe roll
    school screen seashells seeds sheeps six_figures sleeve sleeves slide smoke solitary_figure splash splashes
    stable stem stems step steps_up sticker stickers stone straw sugar sun sunlight tarp team terminal third_figure
    three_additional_figures three_figures three_more_figures tile tiles tool tools tower_clock traffic_cone
    traffic_cones trash treat treats tunnel two_figures two_more_figures two_other_figures video_game viewers
    watches wildebeest window_frame window_sill windowsill with_several_cars wood
"""
"""Words of the pool that too often have another meaning: materials, adjectives, verbs, sizes, light, parts, printed
words, numbers of people. Words outside of a definition are also excluded (rain is not `water`, and a ramp is not
`stairs`).
"""


def pool(vocabulary: Vocabulary) -> dict[str, str]:
    """Returns each possible alias -> its label."""
    found = dict(vocabulary.aliases)
    for to, names in MORE.items():
        for word in names.split(";"):
            found.setdefault(word, to)
    owner = {to: to for to in vocabulary.labels}
    owner |= {
        name.strip(): to for to, names in PLACES.items() for name in re.split(";" if ";" in names else " ", names)
    }
    by_coco = {vocabulary.info[to].coco[0]: to for to in vocabulary.labels if vocabulary.info[to].coco}
    for other in (Vocabulary.load("open400"), Vocabulary.load("coco80")):
        for label in other.labels:
            words = [label, *other.aliases_of(label)]
            shared = Counter(vocabulary.aliases[word] for word in words if word in vocabulary.aliases)
            coco = other.info[label].coco
            to = by_coco.get(coco[0]) if coco else None
            to = to or (shared.most_common(1)[0][0] if shared else owner.get(label))
            for word in words[1:] if to else ():
                found.setdefault(word, to)
    tokens: dict[tuple[str, ...], str] = {}
    struck = {word.replace("_", " ") for word in STRUCK.split()}
    found = {word: to for word, to in found.items() if word not in struck}
    return {word: to for word, to in found.items() if tokens.setdefault(tokenize_alias(word), word) == word}


def sources() -> dict[str, list[str]]:
    """Returns file -> its captions, without those of gold/held_out*.jsonl."""
    lines = (line for path in GOLD.glob("held_out*.jsonl") for line in path.read_text().splitlines())
    held = {(row["file"], row["line"]) for row in map(json.loads, lines)}
    paths = [DATA / file for file in RECENT.values()] + [
        path for names in OLDER for name in names for path in sorted(DATA.glob(name))
    ]
    named = {str(path.relative_to(DATA)): list(captions_of(path)) for path in paths}
    return {file: [text for k, text in enumerate(texts) if (file, k) not in held] for file, texts in named.items()}


def spellings(words: Iterable[str]) -> dict[tuple[str, ...], str]:
    """Returns folded words -> alias."""
    return {tokenize_alias(word)[::2]: word for word in words}


def counted(matcher: AliasMatcher, texts: Sequence[str], words: Mapping[str, str]) -> tuple[Counter[str], Counter[str]]:
    """Returns the number of mentions of each word (at most AT_MOST per caption), and the number of captions that
    contain it.
    """
    spelled, mentions, captions = spellings(words), Counter[str](), Counter[str]()
    out = LEFT_OUT["visual"]
    for text in texts:
        found = Counter(
            spelled.get(tokenize_alias(m.surface.strip())[::2]) for m in matcher.find(text) if m.use not in out
        )
        for word, number in found.items():
            if word is not None:
                mentions[word] += min(number, AT_MOST)
                captions[word] += 1
    return mentions, captions


def head_of(word: str, words: Mapping[str, str]) -> str:
    """Returns the shortest end or beginning of a compound that is an alias of its label with the same claims, or the
    word itself.
    """
    parts = word.split(" ")
    ends = (" ".join(parts[k:]) for k in range(len(parts) - 1, 0, -1))
    begins = (" ".join(parts[:k]) for k in range(1, len(parts)))
    shorter = [*ends, *(begin for begin in begins if not noun_behind(word, len(begin)))]
    return next((part for part in shorter if words.get(part) == words[word]), word)


def scores(
    counts: Mapping[str, tuple[Counter[str], Counter[str], int]], words: Mapping[str, str], without: str = ""
) -> dict[str, float]:
    """Returns word -> score over all sources except one."""
    total, captions = Counter[str](), Counter[str]()
    recent = [[file] for file in RECENT.values() if file != without]
    older = [[file for file in counts if any(fnmatch(file, name) for name in names)] for names in OLDER]
    for groups, share in ((recent, 1 - OLDER_SHARE), (older, OLDER_SHARE)):
        weight = sum(counts[files[0]][2] ** 0.5 for files in groups)
        for files in groups:
            for file in files:
                mentions, present, size = counts[file]
                for word, number in mentions.items():
                    head = head_of(word, words)
                    total[head] += number * share / (size**0.5 * weight * len(files))
                    captions[head] += present[word]
    found = {word: score * (1 if captions[word] > 1 else 0.05) for word, score in total.items()}
    for word in words:
        for plural in (f"{word}s", f"{word}es"):
            if words.get(plural) == words[word]:
                found[plural] = max(found.get(plural, 0.0), found.get(word, 0.0) * PLURAL)
    return found


def spend(vocabulary: Vocabulary, words: Mapping[str, str], score: Mapping[str, float]) -> dict[str, str]:
    """Returns the SIZE selected aliases -> their labels, in the order of the labels."""
    kept = {word for word in words if word == words[word] or word.replace(" ", "_") in KEPT.split()}
    kept |= {vocabulary.aliases_of(label)[0] for label in vocabulary.labels}
    kept |= {
        plural for label in vocabulary.labels for plural in (f"{label}s", f"{label}es") if plural in vocabulary.aliases
    }
    ranked = sorted(words.keys() - kept, key=lambda word: (-score.get(word, 0.0), word))
    chosen = kept | set(ranked[: SIZE - len(kept)])
    place = {label: k for k, label in enumerate(vocabulary.labels)}
    order = sorted(chosen, key=lambda word: (place[words[word]], word != words[word], -score.get(word, 0.0), word))
    return {word: words[word] for word in order}


def rebuilt(text: str, aliases: Mapping[str, str]) -> str:
    """Returns the text of the vocabulary file with other aliases."""
    for label in dict.fromkeys(aliases.values()):
        listed = ", ".join(
            json.dumps(word) if "'" in word or '"' in word else word for word, to in aliases.items() if to == label
        )
        line = f"    aliases: [{listed}]"
        if len(line) > 118:
            line = (
                "    aliases: [\n"
                + textwrap.fill(listed, 110, initial_indent=" " * 6, subsequent_indent=" " * 6)
                + "\n    ]"
            )
        pattern = rf"(\n  {re.escape(label)}:\n(?:    # .*\n)*)    aliases: \[[^\]]*\]"
        text, found = re.subn(pattern, lambda match, line=line: match[1] + line, text)
        assert found == 1, label
    return text


def loaded(text: str) -> Vocabulary:
    """Returns a vocabulary from the text of its file, with the shared rules."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(FILE.parent / "rules.yaml", folder)
        path = Path(folder) / FILE.name
        path.write_text(text, encoding="utf-8")
        return Vocabulary.load(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="put the choice into vocab/dopa160.yaml")
    arguments = parser.parse_args()
    vocabulary, text = Vocabulary.load(NAME), FILE.read_text(encoding="utf-8")
    words = pool(vocabulary)
    whole = AliasMatcher(loaded(rebuilt(text, words)))
    counts = {file: (*counted(whole, texts, words), len(texts)) for file, texts in sources().items()}
    print(f"{len(words):,} words compete; coverage of the annotated captions, percent [95 % interval]")
    for model, row in figures(vocabulary, text, words, counts):
        print(f"{model:<40}{row}")
    if arguments.write:
        FILE.write_text(rebuilt(text, spend(vocabulary, words, scores(counts, words))), encoding="utf-8")


def figures(
    vocabulary: Vocabulary,
    text: str,
    words: Mapping[str, str],
    counts: Mapping[str, tuple[Counter[str], Counter[str], int]],
) -> Iterator[tuple[str, str]]:
    """Returns the coverage of the current file, of a selection with all captions, and of a selection without the
    measured model's captions.
    """
    gold = read_gold()
    lists = {
        "as the file stands": vocabulary,
        "all counted": loaded(rebuilt(text, spend(vocabulary, words, scores(counts, words)))),
    }
    for model, file in RECENT.items():
        chosen = spend(vocabulary, words, scores(counts, words, file))
        lists[f"without {model}"] = loaded(rebuilt(text, chosen))
    each: list[dict[str, int]] = []
    for name, one in lists.items():
        matcher = AliasMatcher(one, "visual")
        for group in [*RECENT, "recent", "older"] if "without" not in name else [name.removeprefix("without ")]:
            members = [
                caption
                for caption in gold
                if group in (model_of(caption), "recent" if model_of(caption) in RECENT else "older")
            ]
            rows = [judge(caption, matcher).counts for caption in members]
            each += rows if "without" in name else []
            values, _ = measure(QUALITY, rows)
            yield (
                f"{group}, {name}",
                f"coverage {percent(values['coverage'])}, precision {percent(values['precision'])}",
            )
    values, _ = measure(QUALITY, each)
    yield "recent, each omitted", f"coverage {percent(values['coverage'])}, precision {percent(values['precision'])}"


if __name__ == "__main__":
    main()
