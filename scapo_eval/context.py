"""Whether a word is the head of its noun phrase, or only says what kind another thing is: "a train", "a train station".

English has no mark for it, so it is read from the word behind. A singular noun is followed by a function word, an
adverb, a participle, a verb in -s, or by the noun that it modifies. Parts and amounts ("bicycle wheel", "pizza slice")
presuppose their whole and modify nothing (docs/specification.md#uses).

Word lists only: no model, no data, always the same answer. The lists are ordinary English and name no benchmark.
"""

from __future__ import annotations

import re
from functools import lru_cache

# What may stand behind a noun phrase: everything here ends it. Open classes (adverbs in -ly, participles, verbs in -s)
# are known by their endings.
FUNCTION_WORDS = frozenset(
    """
    a an the this that these those his her hers its their theirs my mine your yours our ours some any each every either
    neither both all half no none such another other one two three four five six seven eight nine ten several many few
    much most more less enough own same
    i me we us you he him she it they them who whom whose which what where when why how there here
    about above across after against along alongside amid amidst among amongst around as at atop before behind below
    beneath beside besides between beyond but by despite down during except for from in inside into like near nearby
    next of off on onto opposite out outside over past per round since through throughout till to toward towards under
    underneath unlike until up upon versus via with within without
    and or nor so yet if unless while whereas because although though than then whether
    am is are was were be been being has have had having do does did doing done can could may might must shall should
    will would cannot get got gets go goes gone went come came keep kept make made take took taken
    also again ahead alike alone aloft already altogether always apart aside away back backward backwards else even ever
    far fast first forth forward further hard here hence however indeed indoors instead just last later left long maybe
    meanwhile midair moreover mostly never not now often once only outdoors overall overhead perhaps quite rather right
    seldom sideways sometimes somewhat somewhere soon still straight thereby therefore thus today together too twice
    upright upside upstairs downstairs upward upwards downward downwards usually very well yet
    able absent afloat alert alive ablaze adjacent ajar amiss apparent asleep astride available awake aware barefoot
    barely capable clad close closer closest complete deep dry empty evident familiar full high higher identical intact
    large larger low lower mere nearer nearest obvious open partial present prominent ready relevant responsible
    separate shut similar slim small smaller tall taller typical unaware unique unseen visible wet wide worth
    began begin begun beheld bent bitten blew blown bought bound bring broke broken brought built burnt buy catch caught
    choose chose chosen cling clung cut dealt drank drawn drew drive driven drove dug eat eaten ate fallen fed feel
    fell felt find flew flown flung follow found frozen gave give given grew grow grown hang held hid hidden hit hold
    hung hurt kneel knelt knew know known laid lain lay lead leap leapt led lend lent let lie lit look lost love meet
    met overlook paid put ran read reach rode run sat saw say see seem seen sell send sent set shone shook shown shot
    sit slept slid slung sold spent split spread sprung spun stand stood strewn strung stuck swam sway swept swung
    taught tend thrown threw told tore torn tread understood wait wear went woke wore worn woven wrapt
    itself himself herself themselves shows draw draws
    appear await become became capture consist contain convey create depict display engage enjoy evoke exude fill
    gather include indicate occupy offer provide reflect remain resemble serve share showcase suggest surround
    approach accompany adorn belong complement contrast dominate enhance extend feature frame gaze interact lean line
    mid-air mid-stride mid-flight mid-jump mid-swing
    left-hand right-hand who's that's there's it's
    etc vs e g i
    """.split()
)

# Nouns in -ing, -ed, -ly or -s: the endings would take them for participles, adverbs and verbs.
_NOUNS = frozenset(
    """
    bed beds bedding building buildings ceiling ceilings clothing crossing crossings flooring feeding fencing
    landing landings lettering lighting lining marking markings painting paintings parking paving piping plating
    railing railings ring rings roofing seating setting settings siding string strings swing swings
    training wing wings wiring racing boarding bowling cooking decorating fishing housing sled sleds shed sheds seed
    seeds feed weed red assembly belly family fly jelly lily ally supply
    accessories accents ads advertisements animals areas arms attractions balls bags bands bars baskets batteries bikes
    birds blankets boats books boots bottles bowls boxes branches brands bricks buses businesses buttons cabinets cables
    cakes cans caps cards cars carts cases chairs chips cleats clothes clubs coats coasters colors colours companies
    components computers cones containers costumes covers crafts cups curtains cushions cutters dealers dealerships
    decals decorations depots designs dishes displays docks documents drawings dresses drinks elements emblems engines
    enthusiasts events exhibits fans feeders fields figures figurines flags flowers foods fruits games gates gloves
    goods graphics grounds groves handlers hats helmets hoods hooks houses icons illustrations images ingredients
    items jackets jerseys juices kits lamps lanes laws leagues leaves legends lessons letters lids lights lines liners
    lots logos lovers magazines markets masks mats matches meters models motifs mugs names nets numbers orchards
    ornaments outfits overalls owners pads pants parks parties parts patches paths patterns people phones photos
    pillows pins plants plates players platforms pots posters prints products programs props racers racks rails ramps
    rentals repairs restaurants rides riders rights roads robes rooms routes rugs rules sails sales sauces
    sculptures services shades shapes shelters shelves shirts shoes shops shorts signs silhouettes skirts sleeves
    socks sounds sports spots squares stables stalls stars stations statues sticks stickers stores straps streets
    stripes styles suits supplies surfaces symbols systems tables tags tanks taps tapes targets teams tents terminals
    themes tickets ties tiles times toppers tops towels toys tournaments traditions trailers trees trips trucks trunks
    tubes uniforms users vehicles vendors vests walls wheels windows words workers works yards zones
    pieces pictures parents puppies kittens calves lambs cubs chicks goats pigs deer ducks elephants giraffes zebras
    horses cows sheep bears monkeys lions tigers foxes dogs cats
    bass boss business canvas chess chorus class compass congress cross dress fitness glass gas harness lens
    mass mattress press process series species tennis wilderness address actress waitress atlas campus virus menus
    boss express loss mess pass princess toss access compass moss brass
    """.split()
)

# Parts, amounts, places within and makings of a thing: they are there only if the thing is.
PRESUPPOSING = frozenset(
    """
    arm arms armrest armrests back backrest backs base bases basket baskets beak beaks bell bells belly blade blades
    body bodies bottom bottoms brake brakes breast brim bumper bumpers button buttons buds cab cabin camera cap carcass
    chain chest claw claws coat collar compartment console cord core corner corners cover covers crest crew cross crowd
    crowds crumb crumbs crust cushion cushions dashboard deck decks display displays door doors drawer drawers 
    ear ears edge edges end ends engine engines exterior eye eyes face faces feather feathers feet fender fin
    fins finger fingers floret florets foot footage frame frames front fronts fur fuselage gear grill grille group
    groups hair half halves hand handle handlebar handlebars handles hands hair head headboard headlight headlights heads
    helmet herd hindquarters hood hoods hoof hooves horn horns hull hub interior interiors jaw keyboard keyboards key
    keys knob knobs label labels lace laces layer layers leaf leaves leg legs lens lid lids light lights limb limbs line
    linens lining load mane manes mast mattress members member mirror mirrors mouth muzzle neck necks nose noses nostrils
    nozzle occupants oars pane panel panels parts part paw paws pedal pedals
    peel peels petals piece pieces pillows pillow plate  player players point portion portions propeller
    propellers quarter quarters rail railing railings rear rim rims rind roof roofs row rows saddle sail
    sails scales screen screens seam seat seats section sections segment segments shadow shadows sheet sheets shell
    shelf shelves shoulder shoulders side sides silhouette silhouettes skin slice slices snout speaker speakers spine
    spines spoke spokes spout stack stacks stem stems step steps strap straps stripe stripes string strings surface
    surfaces surroundings tablecloth tail tails tank tap tip tips tire tires toes tooth teeth toppings topping top tops
    touchpad tower towers track tracks trailer tray trim trunk trunks tusk tusks underside upholstery wedge wedges wheel
    wheels whiskers windshield windshields window windows wing wings
    covered lined filled topped laden strewn dotted studded fringed capped flanked shaded draped drawn pulled mounted
    shell yolk flesh juice seeds stalk stalks
    color colors colour colours size sizes length height width weight arrangement arrangements collection pair pairs
    area areas space spaces setting settings scene scenes scenery environment atmosphere ambiance landscape landscapes
    background layout location locations spot spots item items object objects species type types variety varieties
    display placement position positions presence count view views vibe backdrop surroundings interior detail details
    control controls controller computer computers post posts branch branches trunk range ranges peak peaks stall stalls
    pool sill wall walls pitch path paths pathway street streets road roads sidewalk counter counters countertop mirror
    ledge terrain surf water floor ground garden foliage canopy bark slope slopes cliff cliffs dune dunes lining
    illustration temperature flash streaked trimmed slicked dusted themed-up thatched
    setup arrangement grounds formation formations texture reflection reflections shape trio duo
    """.split()
) - frozenset("camera lens tower trailer track tracks juice lights line".split())

# what stands behind a noun most often and is known by its ending; the batch matcher knows it by heart
_FREQUENT = """
    seated dressed seemingly likely possibly slightly partially visibly clearly directly prominently skillfully actively
    sitting standing wearing holding looking riding walking playing flying using lying laying resting leaning hanging
    enjoying carrying watching running eating drinking talking facing featuring containing displaying showing traveling
    driving grazing performing skiing floating surfing swimming passing taking adding waiting surrounding serving providing
    occupying sleeping jumping going swinging moving following interacting sailing working preparing appearing engaging
    parasailing creating sharing soaring covering observing sticking participating leading posing snowboarding hovering
    parked placed covered filled surrounded mounted located situated positioned scattered arranged gathered displayed
    attached perched docked engaged involved focused suspended painted titled stacked curled labeled adorned poised
    appears seems stands sits has adds features contains includes suggests indicates creates shows wears holds looks
    extends reads occupies provides takes enjoys serves consists prepares rests misses attempts hangs gives
""".split()

CLOSED_WORDS = tuple(
    word
    for word in dict.fromkeys([*sorted(PRESUPPOSING), *sorted(FUNCTION_WORDS), *_FREQUENT])
    if word.isascii()
    and word.isalpha()
    and (len(word) <= 8 or (len(word) <= 16 and word.endswith(("ing", "ed", "ly"))))
)
"""Words of which :func:`noun_behind` says after a space that they are no noun, the most frequent last."""

_FREQUENT_SET = frozenset(_FREQUENT)

_NAMING = frozenset("logo logos brand books stop station magazine hotel company street avenue museum".split())

_BEHIND = re.compile(r"([ \u00a0\u202f\-\u2010\u2011])([^\W\d_]+)")
_NUMBER_OF = frozenset("people men women children mice geese feet teeth cattle sheep police folk wildlife".split())


def noun_behind(text: str, end: int) -> str:
    """The noun that the word before ``end`` modifies, in lower case; empty where that word is a head.

    Args:
        text: a caption.
        end: where a word of it ends.
    """
    behind = _BEHIND.match(text, end)
    if not behind:
        return ""
    word = behind[2].lower()
    if behind[2][0].isupper() and word not in _NAMING and not behind[2].isupper():  # "player Roger Federer"
        return ""
    return word if _is_noun(word, behind[1] != " ") else ""


def colors(text: str, end: int) -> bool:
    """Whether the color word before ``end`` colors what follows: "orange carrots", "orange striped shirts".

    A color is far more often followed by the thing it colors than a fruit is by a verb or a participle: what no list
    knows as a verb is a thing.

    Args:
        text: a caption.
        end: where a word of it ends.
    """
    behind = _BEHIND.match(text, end)
    if not behind:
        return False
    word = behind[2].lower()
    if _is_noun(word, behind[1] != " "):
        return True
    if word in FUNCTION_WORDS or word in PRESUPPOSING or word in _FREQUENT_SET or word.endswith("ly"):
        return False
    if not word.endswith(("ing", "ed")):
        return len(word) > 2
    further = _BEHIND.match(text, behind.end())
    return further is not None and further[2].lower() not in FUNCTION_WORDS


@lru_cache(maxsize=1 << 14)
def _is_noun(word: str, hyphenated: bool) -> bool:
    if hyphenated and word == "like":
        return True
    if word in FUNCTION_WORDS or word in PRESUPPOSING or len(word) < 3:
        return False
    if word in _NOUNS or hyphenated:
        return True
    if word.endswith(("ly", "ing", "ed")):
        return False
    return not word.endswith("s") or word.endswith("ss")


@lru_cache(maxsize=1 << 14)
def may_modify(surface: str) -> bool:
    """Whether a noun has a form in which English lets it modify another: the singular, roughly."""
    last = re.split(r"[\s\-\u2010\u2011]", surface.lower())[-1]
    return last not in _NUMBER_OF and (not last.endswith("s") or last.endswith(("ss", "us", "tennis")))
