#!/usr/bin/env python3
"""Writes the prompts of the quickstart: the traffic of one small web shop's assistant.

    make_samples.py --out FOLDER [--count 1200] [--unseen 64] [--seed 1]

FOLDER/train.jsonl and FOLDER/unseen.jsonl hold one request a line:

    {"id": "fields-0017", "category": "fields", "messages": [{"role": "system", ...}, {"role": "user", ...}]}

Four kinds of request, in equal numbers:

    fields      an order, as a sentence or as a form, to be written as JSON
    arithmetic  a word problem with one or two steps
    code        a short Python function or class
    rewriting   a sentence to be put another way

People, places, goods, numbers and the wording of the request vary, so two requests of a kind share a shape, not an
answer. No prompt occurs twice, and no unseen prompt occurs in train.jsonl. The same options give the same bytes on every
machine and Python version (only random.Random.random(), whose sequence Python guarantees, is drawn from). Standard library only.
"""

import argparse
import json
import os
import random

# the shop sends each kind of request from another place, with its own system message
SYSTEM = {
    "fields": "Answer briefly.",
    "arithmetic": "Answer in one short sentence.",
    "code": "Answer briefly.",
    "rewriting": "Answer in one short sentence.",
}

FIRST = """Alice Anna Ben Carlos Clara Daniel David Diana Elena Emma Eric Fatima Frank George Grace Hannah Henry Ivan Jack James
Jane Julia Karen Kevin Laura Leo Linda Lisa Lucas Lucy Maria Mark Martin Mary Maya Michael Nina Noah Nora Oliver Omar Paul Peter
Rachel Robert Rosa Ruth Sam Sara Simon Sofia Susan Thomas Tim Tom Victor Wendy""".split()

LAST = """Adams Allen Baker Bell Brown Carter Clark Cohen Collins Cooper Davis Diaz Evans Fisher Foster Garcia Gray Green Hall Harris
Hill Hughes Jackson Johnson Jones Kelly Khan King Lee Lewis Lopez Martin Meyer Miller Mills Moore Morgan Murphy Nelson Parker Patel
Perez Price Reed Roberts Rossi Scott Silva Singh Smith Stone Taylor Turner Walker Ward Watson White Wilson Wood Wright Young""".split()

CITY = """Amsterdam Athens Atlanta Austin Barcelona Berlin Boston Brussels Cairo Chicago Copenhagen Dallas Delhi Denver Dublin
Geneva Hamburg Helsinki Houston Istanbul Jakarta Lima Lisbon London Madrid Manchester Melbourne Miami Milan Montreal Moscow Mumbai
Munich Nairobi Oslo Paris Philadelphia Phoenix Portland Prague Rome Seattle Seoul Singapore Stockholm Sydney Tokyo Toronto Vienna
Warsaw""".split()

# singular and plural
ITEM = [(word, word + "s") for word in """apple|backpack|bag|ball|basket|bell|blanket|book|bottle|bowl|box of tea|bracelet|brush|bucket|
camera|candle|carpet|chair|clock|coat|coffee cup|cookie|cushion|desk|desk lamp|doll|drum|flower pot|garden chair|guitar|hammer|hat|jacket|
kettle|keyboard|lamp|lemon|mirror|mug|necklace|notebook|orange|pan|pear|pen|pencil|phone|pillow|pizza|plant|plate|poster|printer|
puzzle|radio|ring|rug|shirt|spoon|sticker|sweater|table|teapot|tent|ticket|towel|toy car|toy train|umbrella|vase|violin|wallet"""
        .replace("\n", "").split("|") if word != "box of tea"]

COLOUR = "black blue brown golden gray green orange pink purple red silver white yellow".split()
DAY = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTH = "January February March April May June July August September October November December".split()

# what a shop's records hold: class name and possible fields
RECORD = {
    "Customer": "name city phone email address age points",
    "Order": "number customer item price quantity date city",
    "Product": "name price color weight stock size brand",
    "Invoice": "number customer total date tax currency",
    "Supplier": "name city phone email country rating",
    "Parcel": "number weight height width city date",
    "Employee": "name age salary city role phone",
    "Review": "author product stars text date",
    "Ticket": "number customer problem date status",
    "Store": "name city street manager size",
}
NUMBERS = "prices weights ages scores sizes costs amounts totals heights points".split()
WORDS = "names words cities titles labels colors items brands".split()
MEASURE = "price weight cost total amount score height width distance salary".split()


class Draw:
    """Random choices made from Random.random() alone, so that they do not depend on the Python version."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def number(self, low, high):
        """An integer in low..high, both included."""
        return low + int(self.random.random() * (high - low + 1))

    def one(self, things):
        return things[self.number(0, len(things) - 1)]

    def some(self, things, count):
        """`count` different things, in random order."""
        rest = list(things)
        return [rest.pop(self.number(0, len(rest) - 1)) for _ in range(count)]

    def shuffle(self, things):
        return self.some(things, len(things))


def fields(draw):
    name = draw.one(FIRST) + " " + draw.one(LAST)
    city, day = draw.one(CITY), draw.one(DAY)
    quantity, number = draw.number(2, 40), draw.number(1000, 9999)
    singular, plural = draw.one(ITEM)
    if draw.number(0, 3) == 0:
        colour = draw.one(COLOUR)
        singular, plural = colour + " " + singular, colour + " " + plural
    sentence = draw.one([
        f"{name} in {city} ordered {quantity} {plural}.",
        f"{name} from {city} wants {quantity} {plural} by {day}.",
        f"Please send {quantity} {plural} to {name} in {city}.",
        f"Order {number}: {quantity} {plural} for {name} in {city}.",
    ])
    lines = [f"name: {name}", f"city: {city}", f"item: {singular}", f"quantity: {quantity}", f"order: {number}", f"day: {day}"]
    form = draw.some(lines, 4)
    wanted = draw.some(["city", "item", "quantity"], 2)
    keys = f'"name", "{wanted[0]}" and "{wanted[1]}"'
    given = [line.split(":")[0] for line in form]
    return draw.one([
        f"Return a JSON object with the keys {keys}.\n{sentence}",
        f"{sentence}\nGive the name, {wanted[0]} and {wanted[1]} as JSON with the keys {keys}.",
        f"Write the name, {wanted[0]} and {wanted[1]} as JSON with the keys {keys}: {sentence}",
        "Put this order into a JSON object.\n" + "\n".join(form),
        f"Write this form as JSON with the keys {', '.join(given[:-1])} and {given[-1]}.\n" + "\n".join(form),
    ])


def arithmetic(draw):
    who, other = draw.some(FIRST, 2)
    (one, many), (one2, many2) = draw.some(ITEM, 2)
    small, big = draw.number(2, 9), draw.number(12, 60)
    part = draw.number(2, big - 2)
    price, price2 = draw.number(2, 30), draw.number(2, 30)
    return draw.one([
        f"{who} has {big} {many} and sells {part} of them. How many {many} does {who} have left?",
        f"{who} had {big} dollars and spent {part} dollars on a {one}. How many dollars are left?",
        f"{who} buys {small} {many} at {price} dollars each. How much does {who} pay?",
        f"{who} orders {small} {many}. One {one} costs {price} dollars. What is the total?",
        f"{who} has {big} {many}. {other} gives {who} {part} more. How many {many} does {who} have now?",
        f"{who} has {big} {many} and {other} has {part} {many}. How many {many} do they have together?",
        f"A {one} costs {price} dollars and a {one2} costs {price2} dollars. How much do both cost together?",
        f"{who} packs {small} {many} into each box. How many {many} are in {part} boxes?",
    ])


def code(draw):
    if draw.number(0, 1) == 0:
        record = draw.one(sorted(RECORD))
        names = draw.some(RECORD[record].split(), draw.number(3, 4))
        listed = ", ".join(names[:-1]) + " and " + names[-1]
        return draw.one([
            f"Write a Python class {record} with the fields {listed}.",
            f"Write a small Python class named {record} that stores {listed}.",
        ])
    numbers, words = draw.one(NUMBERS), draw.one(WORDS)
    first, second = draw.some(MEASURE, 2)
    limit = draw.number(2, 90)
    return draw.one([
        f"Write a Python function add_{second}({first}, {second}) that adds {second} to {first}.",
        f"Write a Python function count_{words}({words}) that returns the number of {words}.",
        f"Write a Python function largest_{numbers[:-1]}({numbers}) that returns the largest of the {numbers}.",
        f"Write a Python function total_{numbers}({numbers}) that returns the sum of the {numbers}.",
        f"Write a Python function {numbers}_above({numbers}) that returns the {numbers} above {limit}.",
        f"Write a Python function sort_{words}({words}) that returns the {words} in sorted order.",
        f"Write a Python function double_{first}({first}) that returns {first} times {draw.number(2, 9)}.",
    ])


def rewriting(draw):
    who = draw.one(FIRST) + " " + draw.one(LAST)
    _, many = draw.one(ITEM)
    city, day, month = draw.one(CITY), draw.one(DAY), draw.one(MONTH)
    count, number = draw.number(2, 40), draw.number(1000, 9999)
    colour = draw.one(COLOUR)
    sentence = draw.one([
        f"{who} ordered {count} {colour} {many} on {day}.",
        f"The {colour} {many} for {who} go to {city} on {day}.",
        f"{who} from {city} sent back {count} {many} in {month}.",
        f"Order {number} with {count} {many} leaves {city} on {day}.",
        f"We sold {count} {colour} {many} to {who} in {month}.",
        f"{who} will collect order {number} in {city} on {day}.",
        f"The shop in {city} needs {count} {many} before {day}.",
    ])
    return draw.one([
        f"Rewrite this sentence as a question: {sentence}",
        f"Rewrite this sentence in a friendly way: {sentence}",
        f"Correct this sentence: {sentence[0].lower() + sentence[1:-1]}",
        f"Rewrite this sentence in the past tense: {sentence}",
        f"Make this sentence more formal: {sentence}",
    ])


KINDS = {"fields": fields, "arithmetic": arithmetic, "code": code, "rewriting": rewriting}


def samples(count, draw, seen):
    """`count` requests in mixed order, kinds in turn; `seen` holds the prompts that may not occur again."""
    rows = []
    kinds = sorted(KINDS)
    while len(rows) < count:
        kind = kinds[len(rows) % len(kinds)]
        for _ in range(10000):
            prompt = KINDS[kind](draw)
            if prompt not in seen:
                break
        else:
            raise SystemExit(f"make_samples: no new {kind} prompt after 10000 draws; ask for fewer with --count")
        seen.add(prompt)
        rows.append((kind, prompt))
    return draw.shuffle(rows)


def write(path, rows):
    numbers = dict.fromkeys(KINDS, 0)
    temporary = path + ".part"
    with open(temporary, "w", encoding="utf-8", newline="\n") as file:
        for kind, prompt in rows:
            numbers[kind] += 1
            messages = [{"role": "system", "content": SYSTEM[kind]}, {"role": "user", "content": prompt}]
            file.write(json.dumps({"id": f"{kind}-{numbers[kind]:05d}", "category": kind, "messages": messages}) + "\n")
    os.replace(temporary, path)


def main():
    parser = argparse.ArgumentParser(description="Writes the prompts of the quickstart as JSONL.")
    parser.add_argument("--out", required=True, help="folder that receives train.jsonl and unseen.jsonl")
    parser.add_argument("--count", type=int, default=1200, help="training prompts (1200)")
    parser.add_argument("--unseen", type=int, default=64, help="prompts kept for evaluation (64)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.count < 1 or options.unseen < 1:
        parser.error("--count and --unseen must be at least 1")
    os.makedirs(options.out, exist_ok=True)
    seen = set()
    # the unseen prompts come first and from their own seed: they stay the same whatever --count is
    unseen = samples(options.unseen, Draw(f"unseen {options.seed}"), seen)
    train = samples(options.count, Draw(f"train {options.seed}"), seen)
    write(os.path.join(options.out, "unseen.jsonl"), unseen)
    write(os.path.join(options.out, "train.jsonl"), train)
    print(f"{len(train)} training and {len(unseen)} unseen prompts in {options.out}")


if __name__ == "__main__":
    main()
