"""Rules that distinguish the head of a noun phrase from a modifier, as in "a train" and "a train station".

English does not mark the modifiers of a noun, so the rules examine the next word. The next word after a singular noun
is a function word, an adverb, a participle, a verb in -s, or the noun that the singular noun modifies. Nouns for parts
and amounts ("bicycle wheel", "pizza slice") presuppose the whole object, so a word before such a noun is not a modifier
(docs/specification.md#uses).

The rules are deterministic and consist of English word lists. They use no model and do not depend on any benchmark.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import chain
from string import ascii_lowercase

# Words that can follow a noun phrase and end it. Open classes (adverbs in -ly, participles, verbs in -s) are
# recognized by their endings.
FUNCTION_WORDS = frozenset(
    """
    a ablaze able about above absent accompany anybody anyone across add adjacent adorn afloat after afterwards
    again against ahead ajar alert alike alive all allow almost aloft alone along alongside already also although
    altogether always am amid amidst amiss among amongst ample an and another any anymore anyway anywhere apart
    apparent appear approach are aren around as aside asleep astride at ate atop attach available await awake aware
    away back backward backwards barefoot barely be became because become been before began begin begun beheld
    behind being belong below beneath bent beside besides between beyond bit bitten blew blown both bought bound
    bring broke broken brought built burnt but buy by came can cannot capable capture carry catch caught chew choose
    chose chosen clad cling close closer closest clung come complement complete consist contain contrast contribute
    convey could couldn create cut dead dealt deep demonstrate depict despite devour did didn dirty display do does
    doesn doing dominate don done down downstairs downward downwards drank draw drawn draws drew drive driven drove
    dry dug during e each eager earlier eat eaten eight either else elsewhere emerge empty engage enhance enjoy
    enough etc even ever every everybody everyone everything everywhere evident evoke except extend exude fallen
    familiar far fast feature fed feel fell felt few fill find first five fled flew flown flung fly follow for
    forgot forth forward fought found four frame from froze frozen full further g gather gave gaze get gets give
    given go goes gone got greet grew grow grown had hadn half hang hard has hasn have haven having he heard held
    hence her here hers herself hid hidden high higher him himself his hit hold how however hung hurt i identical if
    ignore in include indeed indicate indoors inside inspect instead intact interact into is isn it it's its itself
    just keep kept kneel knelt knew know known laid lain large larger last later lay lead lean leap leapt led left
    left-hand lend lent less let lie like line lit long look lost love low lower made maintain make many may maybe
    me meant meanwhile meet mere merge met mid midair might mine more moreover most mostly much must mustn my near
    nearby nearer nearest need needn neither never nevertheless next nine no nobody none nothing nonetheless nor not
    now nowhere obey observe obvious occupy of off offer often on once one only onto open opposite or other ought
    our ours out outdoors outside outward over overall overhead overlook own paid partial past per perform perhaps
    play present prominent prove provide provided put quite ran rang rather reach read ready real reflect relevant
    remain reminiscent resemble responsible right right-hand rode round run same sang sank sat saw say see seem seen
    seldom sell send sent separate serve set seven several shall share she shone shook shot should shouldn showcase
    shown shows shrank shut sideways similar since sit six slept slid slim slung small smaller sniff so soar sold
    some somebody someone something sometimes somewhat somewhere soon spat sped spent split spoke spread sprung spun
    stand still stole stood straight strewn strode struck strung stuck such suggest suitable surround swam sway
    swept swore swung take taken tall taller taught ten tend than that that's the their theirs them themselves then
    there there's thereby therefore these they this those though three threw through throughout thrown thus till to
    today together told tonight too took tore torn toward towards traverse tread twice two typical unaware under
    underneath understood undone unique unless unlike unseen until up upon upright upside upstairs upward upwards us
    usually vanish versus very via visible vs wait was wasn we wear well went were weren wet what when where whereas
    whether which while who who's whom whose why wide will with within without woke won wore worn worth would wouldn
    wove woven wrapt wrote yet you your yours
    """.split()
)

# Nouns in -ing, -ed, -ly or -s, whose endings are those of participles, adverbs and verbs.
_NOUNS = frozenset(
    """
    accents access accessories actress address ads advertisements ally animals areas arms assembly atlas attractions
    bags balls bands bars baskets bass batteries bears bed bedding beds belly bikes birds blankets boarding boats
    books boots boss bottles bowling bowls boxes branches brands brass bricks building buildings buses business
    businesses buttons cabinets cables cakes calves campus cans canvas caps cards cars carts cases cats ceiling
    ceilings chairs chess chicks chips chorus class cleats clothes clothing clubs coasters coats colors colours
    companies compass components computers cones congress containers cooking costumes covers cows crafts cross
    crossing crossings cubs cups curtains cushions cutters dealers dealerships decals decorating decorations deer
    depots designs dishes displays docks documents dogs drawings dress dresses ducks elements elephants
    emblems emojis engines enthusiasts events exhibits express family fans feed feeders feeding fencing fields figures
    figurines fishing fitness flags flooring flowers foods foxes fruits games gas gates giraffes glass gloves goats
    goods graphics grounds groves handlers harness hats helmets hoods hooks horses houses housing icons
    illustrations images ingredients items jackets jelly jerseys juices kits kittens lambs lamps landing landings
    lanes laws leagues leaves legends lens lessons lettering letters lids lighting lights lily liners lines lining
    lions logos loss lots lovers magazines markets marking markings masks mass matches mats mattress menus mess
    meters models monkeys moss motifs mugs names nets numbers orchards ornaments outfits overalls owners pads
    painting paintings pants parents parking parks parties parts pass patches paths patterns paving people phones
    photos pictures pieces pigs pillows pins piping plants plates platforms plating players posters pots press
    princess prints process products programs props puppies racers racing racks railing railings rails ramps red
    rentals repairs restaurants riders rights ring rings roads robes roofing rooms routes rugs rules sails sales
    sauces sculptures seating seed seeds series services setting settings shades shapes shed sheds sheep shelters
    shelves shirts shoes shops shorts siding signs silhouettes skirts sled sleds sleeves socks sounds species sports
    spots squares stables stalls stars stations statues stickers sticks stores straps streets string strings stripes
    styles suits supplies supply surfaces swing symbols systems tables tags tanks tapes taps targets teams tennis
    tents terminals themes tickets ties tigers tiles times toppers tops toss tournaments towels toys tracks traditions
    trailers training trees trips trucks trunks tubes uniforms users vehicles vendors vests virus waitress walls
    weed wheels wilderness windows wing wings wiring words workers yards zebras zones
    """.split()
)

# Parts, amounts, places and materials of a thing, which are present only if the thing is present.
PRESUPPOSING = frozenset(
    """
    ambiance area areas arm armrest armrests arms arrangement arrangements atmosphere back backdrop background
    backrest backs bark base bases basket baskets beak beaks bell bells belly blade blades bodies body bottom
    bottoms brake brakes branch branches breast brim buds bumper bumpers button buttons cab cabin cabinetry cabinets
    camera canopy cap capped carcass chain chest claw claws cliff cliffs coat collar collection color colors colour
    colours compartment computer computers console control controller controls cord core corner corners count
    counter counters countertop cover covered covers crest crew cross crowd crowds crumb crumbs crust cub cubs curb
    curbs cushion cushions dashboard deck decks detail details display displays divider dividers door doors dotted
    draped drawer drawers drawn dune dunes duo dusted ear ears edge edges end ends engine engines environment
    exterior eye eyes facade face faces feather feathers feet fender filled fin finger fingers fins flanked flash
    flesh floor floret florets foliage foot footage formation formations frame frames fringed front fronts fur
    fuselage garden gear grill grille ground grounds group groups hair half halves hand handle handlebar handlebars
    handles hands head headboard headlight headlights heads heap heaps height helmet herd hindquarters hood hoods
    hoof hooves horn horns hub hull illustration infield interior interiors item items jaw juice key keyboard
    keyboards keys knob knobs label labels lace laces laden landscape landscapes layer layers layout leaf leaves
    ledge leg legs length lens lid lids light lights limb limbs line lined linens lining load location locations
    mane manes mast mattress member members mirror mirrors mounted mouth muzzle neck necks nose noses nostrils
    nozzle oars object objects occupants outfield pair pairs pane panel panels part parts patch patches path paths
    pathway paw paws peak peaks pedal pedals peel peels petals piece pieces pile piles pillow pillows pitch
    placement plate player players point pool portion portions position positions post posts presence propeller
    propellers pulled quarter quarters rail railing railings range ranges rear reflection reflections rim rims rind
    road roads roof roofs row rows runway runways saddle sail sails scales scene scenery scenes screen screens seam
    seat seats section sections seeds segment segments setting settings setup shaded shadow shadows shape sheet
    sheets shelf shell shelves shoulder shoulders side sides sidewalk silhouette silhouettes sill size sizes skin
    slice slices slicked slope slopes snout space spaces speaker speakers species spine spines spoke spokes spot
    spots spout stack stacks stalk stalks stall stalls stem stems step steps strap straps streaked street streets
    strewn string strings stripe stripes studded surf surface surfaces surroundings tablecloth tail tails tank tap
    tarmac teeth temperature terrain texture thatched themed-up tile tiles tip tips tire tires toes tooth top topped
    topping toppings tops touchpad tower towers track tracks trailer tray trim trimmed trio trunk trunks tusk tusks
    type types underside upholstery vanity varieties variety vibe view views wall walls water wedge wedges weight
    wheel wheels whiskers width window windows windshield windshields wing wings yolk
    """.split()
) - frozenset("camera lens tower trailer track tracks juice lights line".split())

# most frequent words after a noun that are recognized by their endings; the batch matcher looks these up
_FREQUENT = """
    seated dressed seemingly likely possibly slightly partially visibly clearly directly prominently skillfully
    actively sitting standing wearing holding looking riding walking playing flying using lying laying resting
    leaning hanging enjoying carrying watching running eating drinking talking facing featuring containing
    displaying showing traveling driving grazing performing skiing floating surfing swimming passing taking adding
    waiting surrounding serving providing occupying sleeping jumping going swinging moving following interacting
    sailing working preparing appearing engaging parasailing creating sharing soaring covering observing sticking
    participating leading posing snowboarding hovering parked placed covered filled surrounded mounted located
    situated positioned scattered arranged gathered displayed attached perched docked engaged involved focused
    suspended painted titled stacked curled labeled adorned poised appears seems stands sits has adds features
    contains includes suggests indicates creates shows wears holds looks extends reads occupies provides takes
    enjoys serves consists prepares rests misses attempts hangs gives
    """.split()

CLOSED_WORDS = tuple(
    word
    for word in dict.fromkeys([*sorted(PRESUPPOSING), *sorted(FUNCTION_WORDS), *_FREQUENT])
    if word.isascii()
    and word.isalpha()
    and (len(word) <= 8 or (len(word) <= 16 and word.endswith(("ing", "ed", "ly"))))
)
"""Words that :func:`noun_behind` never treats as a modified noun after a space. The most frequent words come last."""

_FREQUENT_SET = frozenset(_FREQUENT)

_NAMING = frozenset("logo logos brand books stop station magazine hotel company street avenue museum".split())

QUOTE_REACH = 80
"""Maximum number of characters between two quotation marks. Longer spans are not treated as quotations."""

_BEHIND = re.compile(r"([ \u00a0\u202f\-\u2010\u2011])([^\W\d_]+)")
_OBJECT = re.compile(
    r"\s+(?:an?|the|his|hers?|its|theirs?|him|them|it|itself|himself|herself|one|two|both|from|out|up|off|away)\b"
)
_NAMED = ("called ", "named ", "titled ", " at ")
_NUMBER_OF = frozenset("of people men women children mice geese feet teeth cattle sheep police folk".split())


def in_a_name(text: str, start: int, end: int) -> bool:
    """Returns True if a word begins a name that consists of several capitalized words, as in "a bar called Hot Dog
    Heaven".

    Args:
        text: A caption.
        start: Offset of the first character of the word.
        end: Offset after the last character of the word.
    """
    if not text[start].isupper() or not text.endswith(_NAMED, 0, start):
        return False
    behind = _BEHIND.match(text, end)
    return behind is not None and behind[2].istitle() and behind[2].lower() not in FUNCTION_WORDS


def noun_behind(text: str, end: int) -> str:
    """Returns the noun, in lower case, that the word before ``end`` modifies. Returns an empty string if the word is
    the head of its phrase.

    Args:
        text: A caption.
        end: End offset of a word in the caption.
    """
    behind = _BEHIND.match(text, end)
    if not behind:
        return ""
    gap, written = behind.groups()
    word = written.lower()
    if word.endswith(("s", "ing")) and _OBJECT.match(text, behind.end()):
        return ""  # "the man ties his shoes", "the boy feeding it"
    if word != written and written[0].isupper() and word not in _NAMING and not written.isupper():
        return ""  # "player Roger Federer"
    if word in _COLORS and not _BEHIND.match(text, behind.end()):
        return ""  # "is the car red?"
    return word if _is_noun(word, gap != " ") else ""


# verbs after bare plurals in a scene: "Boats bob in the harbor."
_IN_A_SCENE = frozenset(
    """
    adorn beam bike bob bounce bow browse bump burn cast chase chat chatter cheer circle clap climb cling cluster
    congregate cook crawl cross crouch crowd cruise cycle dance dangle dart decorate descend dine dip dot drift drip
    exchange fill fish flank flap flash flicker flow flutter follow frolic gallop gather gesture glide glisten glow
    graze grin hail hold hop hover huddle hurry jog jostle jump kick laugh lick line linger litter loiter look loom
    lounge march mill mingle mount move nap navigate nestle nibble nod occupy parade pass pause peck peek peer perch
    picnic pile play poke pose praise prance pray queue race raise reflect relax rest ride rise roam roll row rush
    sail scatter scramble scurry shade shelter shine shop shout sing sit skate ski sleep smile smoke snow soar spar
    spill splash spray sprout squat stack stare stick stir stream stretch stroll surf surround swim swing talk text
    throw toss tour tower travel trot tug turn wade wag wander watch wave weave whirl whiz work yawn zigzag zip zoom
    """.split()
)
_SENTENCE = re.compile(r"(?:\A|[.!?\n][\"\u201d)*_]*\s*)\Z")
_HERE = re.compile(
    r"(?i)\b(?:this|these|here|the one|that one|pictured)\b"
    r"|\A\s+\w+\s+(?:\w+\s+)?(?:easily|faster|best|better|instinctively|every (?:day|year|night)|when they|if they)\b"
)


def in_general(text: str, start: int, end: int) -> bool:
    """Returns True if a plural begins a sentence about its kind: "Giraffes give birth standing up; this giraffe ...".

    The noun has no article and is followed by a plural verb that does not describe a scene. The text after it also
    repeats the noun or contains a word such as "this" or "here".

    Args:
        text: A caption.
        start, end: Span of the noun.
    """
    surface = text[start:end]
    if not _SENTENCE.search(text, max(0, start - 4), start):
        return False
    behind = _BEHIND.match(text, end)
    if not behind or behind[1] != " ":
        return False
    word = behind[2]
    if word in FUNCTION_WORDS or word in PRESUPPOSING or word in _FREQUENT_SET or word in _IN_A_SCENE:
        return False
    if not word.islower() or len(word) < 3 or word.endswith(("ly", "ing", "ed", "s")):
        return False
    further = text[end : end + 200]
    return surface.lower()[:-1] in further.lower() or _HERE.search(further) is not None


_COLLECTIVE = frozenset("couple family team crowd group crew audience staff pair trio band class public".split())
_CAUSES = re.compile(
    r"(?i)\b(?:made|makes?|making|lets?|letting|helps?|watch(?:es)?|saw|sees?|hears?)\s+(?:the|an?|his|her)\s+(?:\w+\s+)?$"
)


def acts(text: str, start: int, end: int, verb: str) -> bool:
    """Returns True if a noun does what the next word says, as in "the couple pose" and "made the girl laugh".

    Args:
        text: A caption.
        start, end: Span of the noun.
        verb: Word after the noun, in lower case.
    """
    if verb in _WITH_SEVERAL and _is_one_of_several(text, start, end + 1 + len(verb)):
        return True
    if verb not in _IN_A_SCENE:
        return False
    return text[start:end].lower() in _COLLECTIVE or _CAUSES.search(text, max(0, start - 30), start) is not None


# verbs that take no -s after several subjects; many of them are also nouns: "a dog walk"
_WITH_SEVERAL = (_IN_A_SCENE - frozenset("bike cast dot fish line mount pile row shelter shop stack stick".split())) | (
    frozenset(
        """
        argue bark bathe beg bite catch climb cool converse crawl cuddle dash dig doze drink embrace enter fetch fight
        float glance graze greet hide hike howl hug hunt hurdle hurtle jog kiss land leave lick nuzzle paddle pant pass
        pull push romp rummage run scratch shake share skateboard sledge slide slumber snack sniff snooze
        snuggle sprint stalk step sunbathe touch trek tumble walk wait wrestle
        """.split()
    )
)
_JOINT = re.compile(
    r"(?i)(?<=[\w,'\u2019])\s{1,3}(?:and|or|as\s{1,3}well\s{1,3}as|(?:along|together)\s{1,3}with)\s{1,3}"
    r"(?:(?:an?|the|his|her|its|their|one|another|some|this|that)\s{1,3})?"
    r"(?:(?!(?:of|in|on|at|with|by|near|from|for|to|is|are|was|were|has|have|an?|the|his|her|its|their)\s)"
    r"(?![\w-]{1,30}(?:(?<!s)s|ing)\s)[\w-]{1,30},?\s{1,3}){0,3}$"
)
_BEFORE_JOINT = 90
_ONLY_SUBJECTS = re.compile(
    r"(?i)(?:^|[.!?;:\n,]|\b(?:while|as|where|when|and|but|how|because))[\s\"\u201c*_]{0,5}"
    r"(?:(?:an?|the|his|her|its|their|one|two|three|four|five|several|some|many|another)\s{1,3})?"
    r"(?:(?!(?:an?|the|his|her|its|their)\s)[\w-]{1,30}\s{1,3}){0,2}[\w-]{1,30}"
    r"(?:\s{1,3}(?:in|on|with|of|by|near|from|at)\s{1,3}(?:(?:an?|the|his|her|its|their)\s{1,3})?"
    r"(?:[\w-]{1,30}\s{1,3})?[\w-]{1,30})?,?$"
)
_NOUN_AFTER = re.compile(
    r"(?i)[ \u00a0]{1,3}(?:is|are|was|were|has|had|can|could|will|would|may|might|seems?|appears?|begins?|starts?"
    r"|breaks?|takes?|signs?|tracks?|paths?|areas?|parks?|trails?|courses?|zones?|rooms?|houses?|boards?|lessons?"
    r"|schools?|clubs?|tickets?|stations?|scenes?|shows?|poses?)\b"
)
_PHRASE_ENDS = re.compile(r"[\"\u201d*_]{0,5}\s{0,3}(?:$|[.!?;:,)\n]|(?:and|or)\b)")


def _is_one_of_several(text: str, start: int, verb_end: int) -> bool:
    """Returns True if a noun is one of several subjects of the next word, as in "a man and a dog walk".

    A verb without -s agrees with several subjects but not with the noun alone. The word is a noun if an auxiliary or
    another noun follows it ("a cat and a dog walk sign"), or if the phrase ends after it and a verb may precede the
    subjects ("the park offers a lawn and a dog walk").

    Args:
        text: A caption.
        start: Offset of the first character of the noun.
        verb_end: Offset after the last character of the next word.
    """
    begin = max(0, start - _BEFORE_JOINT)
    joint = _JOINT.search(text, begin, start)
    if not joint or _NOUN_AFTER.match(text, verb_end):
        return False
    return not _PHRASE_ENDS.match(text, verb_end) or _ONLY_SUBJECTS.search(text, begin, joint.start()) is not None


_BARE = tuple(
    f" {word} " for word in "with for several many various different sells sell selling two three four five six".split()
)


def plural_behind(text: str, start: int, end: int) -> str:
    """Returns the plural noun that a singular noun without an article modifies, as in "with cat collars".

    Args:
        text: A caption.
        start, end: Span of the singular noun.
    """
    if not text.endswith(_BARE, 0, start):
        return ""
    behind = _BEHIND.match(text, end)
    if not behind or not behind[2].endswith("s") or not behind[2].islower():
        return ""
    word = behind[2]
    if word in ("antlers", "ones", "waves") or word in FUNCTION_WORDS or word in PRESUPPOSING or word in _FREQUENT_SET:
        return ""
    return word


_OF_FRUIT = frozenset(
    "slice slices half halves wedge wedges segment segments piece pieces peel peels rind skin flesh quarter quarters"
    " seeds pair pairs stack stacks group row rows halved sliced".split()
)
_COLORS = frozenset(
    "red blue green yellow black white brown gray grey pink purple violet teal turquoise beige tan gold silver maroon"
    " navy cream".split()
)
_MARKUP = " \t\n*_`,;/&+()[]|\u2013\u2014-"
_NEXT_IN_LIST = re.compile(rf"[{re.escape(_MARKUP)}]{{1,10}}(?:(?:and|or)[ *_`]{{1,4}})?([^\W\d_]+)")


def colors(text: str, start: int, end: int) -> bool:
    """Returns True if a word that can name a color or a fruit is used as a color, as in "orange carrots" or "**red**,
    **orange**".

    The next word decides between the two meanings. A color is followed by the object that it describes far more often
    than a fruit is followed by a verb or participle. Therefore, the next word counts as a colored object unless a list
    classifies it as a verb.

    Args:
        text: A caption.
        start: Offset of the first character of the word.
        end: Offset after the last character of the word.
    """
    return _colors_what_follows(text, end) or _is_listed_with_colors(text, start, end)


def _colors_what_follows(text: str, end: int) -> bool:
    behind = _BEHIND.match(text, end)
    if not behind:
        return False
    word = behind[2].lower()
    if word in _OF_FRUIT:
        return False
    if word in PRESUPPOSING or _is_noun(word, behind[1] != " "):
        return True
    if word in FUNCTION_WORDS or word in _FREQUENT_SET or word.endswith("ly"):
        return False
    if not word.endswith(("ing", "ed")):
        return len(word) > 2
    further = _BEHIND.match(text, behind.end())
    return further is not None and further[2].lower() not in FUNCTION_WORDS


def _is_listed_with_colors(text: str, start: int, end: int) -> bool:
    behind = _NEXT_IN_LIST.match(text, end)
    if behind and behind[1].lower() in _COLORS:
        return True
    before = text[max(0, start - 30) : start].rstrip(_MARKUP + ":")
    for joint in (" and", " or"):
        before = before.removesuffix(joint).rstrip(_MARKUP)
    word = before.replace("*", " ").rpartition(" ")[2].lower()
    return word in _COLORS or word in ("color", "colors", "colour", "colours")


@lru_cache(maxsize=1 << 14)
def _is_noun(word: str, hyphenated: bool) -> bool:
    if hyphenated and word == "like":
        return True
    if word in FUNCTION_WORDS or word in PRESUPPOSING or len(word) < 3:
        return False
    if word in _NOUNS or hyphenated:
        return True
    if word.endswith(("ly", "ing", "ed", "less", "ous")):
        return False
    return not word.endswith("s") or word.endswith("ss")


@lru_cache(maxsize=1 << 14)
def may_modify(surface: str) -> bool:
    """Returns True if a noun has a form that can modify another noun in English, which is usually the singular."""
    last = re.split(r"[\s\-\u2010\u2011]", surface.lower())[-1]
    return last not in _NUMBER_OF and (not last.endswith("s") or last.endswith(("ss", "us", "tennis")))


def plural_endings() -> frozenset[str]:
    """Returns a set of final letter pairs, which includes those of all nouns for which :func:`may_modify` is false."""
    ends_in_s = (second + "s" for second in ascii_lowercase if second not in "su")
    return frozenset(chain(ends_in_s, (word[-2:] for word in _NUMBER_OF)))
