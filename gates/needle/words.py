"""The word stock of the generated prose: own lists, sorted by the place a word may take in a sentence.

Knows no grammar (that is ``prose``) and holds no needle key (``text.KEYS``; a test keeps the two apart).
Verbs are written ``base`` when the past ends in a plain -ed, ``base/past`` otherwise.
"""

from __future__ import annotations

from typing import Final


def _split(words: str) -> tuple[str, ...]:
    return tuple(words.split())


def _phrases(lines: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in lines.replace("\n", " ").split(",") if part.strip())


WOMEN: Final = _split("""
Agnes Alma Amelia Beatrice Bettina Camilla Clara Cordelia Dora Edith Eleanor Elsa Emilia Esther Fiona
Flora Frieda Greta Hannah Harriet Helena Ida Ingrid Irene Johanna Josephine Judith Karin Leonora Lydia
Mabel Magda Marianne Martha Matilda Miriam Nadia Nora Olive Ottilie Paula Philippa Rosalind Ruth Sabine
Selma Sophie Tamara Thea Ursula Vera Winifred
""")
MEN: Final = _split("""
Albert Ambrose Anton Arthur Basil Benedict Bernard Caspar Clemens Conrad Daniel Dominic Edgar Edmund Emil
Ernest Felix Ferdinand Frederick Gabriel Gilbert Gregor Gustav Harold Henrik Hugo Isaac Jakob Jonas
Julian Konstantin Lambert Leopold Ludwig Magnus Martin Maurice Nathan Nicholas Oskar Otto Patrick Peter
Quentin Raymond Rupert Samuel Simon Tobias Valentin Victor Walter
""")
TOWNS: Final = _split("""
Aldermoor Ashcombe Barrowby Bexhaven Birkendale Brackwater Carrowmore Chelworth Copperford Dunmere
Eastmarch Elderby Fallowfield Fernhurst Galbreck Glenarrow Greyminster Halvergate Hazelmere Hollowby
Inverlake Karlsbruck Kestermoor Langholm Lindenau Marlbury Merrowdale Milford Netherby Norrisham
Oakhampton Orlestone Pennygate Quarrington Ravensholt Rosenfeld Saltmarsh Silverdale Stonebridge
Tamworthy Thornbury Undercliff Valdorra Wardenby Westerholm Whitcombe Wintersea Yarrowby
""")
ROLES: Final = _split("""
baker farmer teacher doctor sailor captain merchant tailor carpenter blacksmith shepherd gardener miller
priest judge lawyer clerk painter poet printseller musician singer dancer actor soldier general officer
sergeant hunter fisherman nurse cook servant butler porter coachman innkeeper mayor notary student
professor librarian pupil orphan cousin neighbour stranger traveller pilgrim messenger ferryman beggar
thief guard gatekeeper watchman apprentice weaver potter mason glazier bookbinder cobbler brewer butcher
schoolmaster chemist engineer surveyor mapmaker explorer inspector secretary banker tenant bishop monk
""")
ANIMALS: Final = _split("""
horse mare pony ox goat sheep lamb dog puppy cat kitten hen rooster goose duck mule fox wolf bear deer
stag hare owl crow sparrow swallow blackbird starling lark robin magpie frog toad mouse rat weasel bee
wasp moth snail
""")
THINGS: Final = _split("""
letter basket table chair bench box trunk book map picture coat hat glove boot shoe shirt apron
handkerchief ribbon rope string needle thread cloth sack bag bottle jug cup plate bowl spoon fork knife
pot pan barrel crate shelf cupboard drawer desk pen candle lamp stove clock watch bell key lock chain
nail plank beam board wheel cart carriage sledge oar net sail rudder mast boat raft spade axe scythe
plough broom brush comb ring coin purse photograph newspaper ledger contract receipt ticket parcel stamp
drawing portrait frame vase flowerpot stone brick tile feather shell whistle toy doll blanket quilt
cushion rug screen fan tray tablecloth napkin cake loaf pie cheese ham bunch herb bread manuscript diary
register telegram poster flag banner sword pistol saddle bridle harness stick cane pipe matchbox snuffbox
cradle stool footstool bookcase doorstep bolt hinge handle lid cork
""")
PLACES: Final = _split("""
house kitchen garden yard barn stable cellar attic hall parlour study library chapel church school market
square street lane bridge mill forge bakery workshop shop tavern inn station harbour quay warehouse
office bank courtroom hospital cemetery orchard meadow field forest wood hill valley river stream lake
pond marsh shore beach cliff island moor heath quarry mine tower gate wall stairway corridor balcony
terrace porch theatre museum ballroom schoolroom farmhouse cottage manor mansion vineyard pasture
crossroads churchyard dockyard boathouse greenhouse washhouse toll-house
""")
PARTS: Final = _split("""
door window roof floor ceiling chimney fireplace hearth staircase threshold windowsill doorway fence
hedge path road pavement gutter well pump railing cornerstone doorframe skylight gable shutter
""")
NATURE: Final = _split("""
wind rain snow fog mist frost storm thunder sunlight moonlight twilight dusk dawn darkness cold heat
smoke dust tide current silence breeze hail drizzle cloud rainbow shadow
""")
TREES: Final = _split(
    "oak elm beech ash birch pine fir poplar alder hawthorn ivy moss fern clover thistle nettle reed heather"
)
IDEAS: Final = _split("""
truth promise secret rumour memory hope fear anger joy grief patience courage pride shame kindness doubt
suspicion curiosity regret relief loneliness weariness friendship quarrel bargain debt fortune
inheritance marriage wedding funeral journey voyage harvest holiday feast war peace law duty custom
reputation ambition mistake lesson answer question reason excuse plan idea dream story song tune prayer
word name rule habit opinion decision
""")
GOODS: Final = _split("""
bread butter milk cream honey salt sugar flour wine beer cider tea coffee soup stew porridge wool linen
cotton silk leather iron copper silver tin brass glass paper ink wax coal timber straw hay oats barley
rye seed tobacco
""")
BODY: Final = _split("hand face eye shoulder head arm knee finger voice heart forehead brow cheek")

RELATIVES_F: Final = _split(
    "aunt niece grandmother sister mother widow governess midwife maid daughter godmother landlady"
)
RELATIVES_M: Final = _split(
    "uncle nephew grandfather brother father widower stepson valet son godfather landlord bachelor"
)

PERSON_ADJECTIVES: Final = _split("""
old young tall short thin stout pale tired cheerful gloomy quiet talkative careful careless proud humble
brave timid kind stern gentle rough clever simple wise foolish lazy busy poor rich lonely friendly
suspicious curious patient impatient honourable faithful stubborn generous greedy nervous calm solemn
merry grave thoughtful absent-minded well-dressed barefoot weather-beaten grey-haired red-cheeked
broad-shouldered good-natured hard-working soft-spoken polite rude sleepy hungry restless silent bashful
bold weary
""")
ANIMAL_ADJECTIVES: Final = _split("""
old young small large thin fat lame lazy tame wild hungry grey black white brown spotted striped quiet
shy stubborn sleepy clever nervous shaggy lost frightened noisy patient sick
""")
THING_ADJECTIVES: Final = _split("""
heavy light small large little big long narrow wide thick round square flat crooked straight broken
mended new worn dusty clean dirty polished rusty wooden leather-bound painted plain handsome ugly cheap
costly borrowed stolen forgotten lost hidden open closed locked empty full half-empty wet dry soft hard
smooth sharp blunt bright dark black white grey brown red blue green yellow crimson golden silvery
striped spotted carved woven knitted embroidered faded torn patched folded sealed damp warm cool fragile
solid curious familiar strange odd foreign precious worthless favourite second-hand homemade well-kept
neglected cracked gilded varnished battered
""")
PLACE_ADJECTIVES: Final = _split("""
quiet crowded deserted distant nearby ancient ruined abandoned lonely pleasant gloomy sunny shady windy
cold chilly cosy spacious cramped low high steep muddy stony grassy snowy frozen flooded peaceful noisy
busy sleepy respectable famous forgotten hidden dim well-lit whitewashed ivy-covered moonlit draughty
sheltered
""")
NATURE_ADJECTIVES: Final = _split("""
cold bitter gentle heavy thin sudden steady grey pale soft sharp early late endless warm wild dense icy
fierce faint
""")
IDEA_ADJECTIVES: Final = _split("""
great small secret bitter sweet old new sudden strange true false simple difficult painful happy unhappy
common rare long-forgotten private public honest serious trifling terrible wonderful reasonable foolish
important
""")

MANNER: Final = _split("""
slowly quickly quietly carefully carelessly gently softly loudly proudly sadly happily cheerfully
gloomily patiently impatiently politely rudely calmly nervously anxiously eagerly reluctantly secretly
openly honestly suddenly gradually silently firmly kindly coldly warmly thoughtfully absently solemnly
merrily clumsily neatly awkwardly bravely timidly wearily stubbornly hastily cautiously gratefully
bitterly earnestly lightly briskly
""")
TIME_ADVERBS: Final = _split(
    "always often sometimes seldom rarely never usually occasionally generally still already soon"
)
DEGREE: Final = _split(
    "very rather quite too almost hardly so fairly remarkably unusually hopelessly perfectly"
)

VERBS_TRANSITIVE: Final = _split("""
carry/carried lift open close/closed clean wash mend polish paint hide/hid find/found lose/lost
drop/dropped push pull kick collect gather count measure/measured weigh examine/examined inspect
notice/noticed watch study/studied admire/admired describe/described mention remember forget/forgot
recognise/recognised order buy/bought sell/sold borrow lend/lent steal/stole return deliver bring/brought
take/took fetch send/sent receive/received accept refuse/refused offer keep/kept guard leave/left abandon
cover wrap/wrapped unwrap/unwrapped fold tie/tied untie/untied fasten loosen lock unlock break/broke
repair replace/replaced move/moved turn raise/raised lower throw/threw catch/caught hold/held grasp touch
press scratch cut/cut carve/carved sharpen burn/burnt warm dry/dried fill empty/emptied pour stir/stirred
arrange/arranged sort pack unpack label load unload drag/dragged hang/hung bury/buried uncover discover
search choose/chose point-at/pointed-at sketch copy/copied sign stamp seal tear/tore want need like/liked
dislike/disliked despise/despised value/valued praise/praised blame/blamed fear
""")
VERBS_PEOPLE: Final = _split("""
meet/met greet visit follow help thank scold praise/praised tease/teased trust doubt deceive/deceived
warn question invite/invited welcome/welcomed recognise/recognised remember forgive/forgave pity/pitied
envy/envied admire/admired avoid ignore/ignored interrupt accompany/accompanied comfort
persuade/persuaded convince/convinced surprise/surprised frighten amuse/amused annoy offend
embrace/embraced pay/paid hire/hired dismiss teach/taught advise/advised marry/married love/loved respect
mistrust obey disturb/disturbed
""")
VERBS_MOTION: Final = _split("""
walk run/ran hurry/hurried wander stroll ride/rode drive/drove climb creep/crept rush march limp
stumble/stumbled return travel/travelled row/rowed swim/swam sail-away/sailed-away come/came go/went
step/stepped slip/slipped turn-back/turned-back set-out/set-out flee/fled drift
""")
VERBS_REST: Final = _split("""
sit/sat stand/stood wait sleep/slept rest kneel/knelt lie/lay work sing/sang whistle/whistled laugh
weep/wept smile/smiled sigh tremble/trembled listen talk whisper pray read/read write/wrote eat/ate
drink/drank think/thought dream dance/danced play cough shiver yawn hesitate/hesitated
""")
VERBS_SAY: Final = _split("""
say/said reply/replied answer ask whisper cry/cried shout murmur mutter explain add/added remark
declare/declared announce/announced admit/admitted insist repeat suggest exclaim/exclaimed
observe/observed confess protest
""")
VERBS_THINK: Final = _split("""
know/knew believe/believed suppose/supposed hope/hoped fear feel/felt see/saw hear/heard
understand/understood suspect learn realise/realised decide/decided imagine/imagined guess doubt
notice/noticed remember
""")
VERBS_WONDER: Final = _split(
    "know/knew ask understand/understood guess explain discover learn remember forget/forgot imagine/imagined"
)
VERBS_NATURE: Final = _split("""
fall/fell rise/rose settle/settled spread/spread gather fade/faded deepen vanish return linger
grow-stronger/grew-stronger creep-closer/crept-closer die-down/died-down break/broke thicken
drift-by/drifted-by pass
""")
VERBS_ANIMAL: Final = _split("""
graze/grazed bark growl hide/hid leap doze/dozed feed/fed stray circle/circled flutter scamper stretch
""")
VERBS_STATE: Final = _split("""
belong-to/belonged-to resemble/resembled deserve/deserved require/required conceal explain change/changed
destroy outlast interest trouble/troubled occupy/occupied ruin rule/ruled fill satisfy/satisfied
""")

MONTHS: Final = _split(
    "January February March April May June July August September October November December"
)
DAYS: Final = _split("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
SEASONS: Final = _split("spring summer autumn winter")
ORDINALS: Final = _split("""
first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth
fifteenth sixteenth seventeenth eighteenth nineteenth twentieth twenty-first twenty-second twenty-third
twenty-fourth twenty-fifth twenty-sixth twenty-seventh twenty-eighth
""")
NUMBERS: Final = _split("""
two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety
""")
TENS: Final = _split("twenty thirty forty fifty sixty seventy eighty ninety")
UNITS: Final = _split("one two three four five six seven eight nine")
DURATIONS: Final = _split("minutes days weeks months years winters summers mornings evenings nights")

TIME_PHRASES: Final = _phrases("""
in the morning, before breakfast, after supper, late at night, at sunrise, at sunset, towards evening,
around noon, after the rain, on the way home, for the first time in years, every other week, once a year,
the day before yesterday, that same afternoon, on market days, during the long winter, in the middle of
the night, as usual, without a word, for no reason at all, at the last moment, in good time, once more,
after a short pause, in those days, before the war, at the end of the week, from time to time, in bad
weather, with the help of the neighbours, against all advice
""")
OPENINGS: Final = _phrases("""
at first, in the end, after all, as it happened, to tell the truth, by chance, for a while, little by
little, strangely enough, in spite of everything, a little later, the next morning, that evening, some
time afterwards, long ago, on the other side, from the beginning, now and then, in the meantime, without
doubt, as a rule, towards the end, to everyone's surprise, in the opinion of most people, before long,
all the same
""")
