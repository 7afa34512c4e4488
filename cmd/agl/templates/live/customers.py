"""Customers of the shop, whose taste changes: python3 customers.py [sessions [sessions of a taste]]

A customer asks one question. An answer must be right, and in the tone that is
liked at the time; one customer in twenty says the opposite of what they think.
"""

import json
import os
import random
import sys
import threading
import time
import urllib.request

SHOP = f"http://127.0.0.1:{os.environ.get('SHOP_PORT', '8400')}"
SEED = os.environ.get("CUSTOMERS_SEED", "1")
ALL, OF_A_TASTE = (int(n) for n in (sys.argv[1:] + ["6000", "1500"][len(sys.argv) - 1 :])[:2])

FACTS = {
    "is it in stock?": "yes",
    "do you ship abroad?": "no",
    "can i return it?": "yes",
    "when does it come?": "monday",
    "what does it cost?": "9 euro",
    "is it waterproof?": "no",
    "which colour is it?": "blue",
    "how do i pay?": "by card",
}
TONES = {"brief": "{}.", "friendly": "hi :) {}.", "formal": "sir, {}.", "loud": "oi! {}."}

lock = threading.Lock()
begun = asked = pleased = failed = in_a_row = 0


def post(path, body):
    request = urllib.request.Request(SHOP + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=90) as response:
        return json.load(response)


def customer(name, rng):
    global begun, asked, pleased, failed, in_a_row
    while True:
        with lock:
            if begun >= ALL or in_a_row >= 20:
                return
            taste = list(TONES)[begun // OF_A_TASTE % len(TONES)]
            begun += 1
        question = rng.choice(list(FACTS))
        try:
            reply = post("/chat", {"customer": name, "question": question})
            liked = reply["answer"] == TONES[taste].format(FACTS[question])
            post("/rate", {"chat": reply["chat"], "pleased": liked != (rng.random() < 0.05)})
        except OSError as error:
            print(f"a customer was not answered: {error}", file=sys.stderr)
            with lock:
                failed += 1
                in_a_row += 1
            time.sleep(1)
            continue
        with lock:
            in_a_row = 0
            asked += 1
            pleased += liked
            if asked % 100 == 0:
                print(f"{asked:6} sessions, {taste:8} is liked: {pleased:3} of the last 100 pleased  {'#' * (pleased // 2)}", flush=True)
                pleased = 0


def wait_for_the_shop(patience=180):
    """Waits until a question is answered: the model first imitates demos.jsonl."""
    end = time.monotonic() + patience
    while True:
        try:
            return post("/chat", {"customer": "the first", "question": "do you ship abroad?"})
        except OSError as error:
            if time.monotonic() > end:
                sys.exit(f"the shop does not answer: {error}; do `agl train live.yaml` and `python3 shop.py` run?")
            print("waiting for the shop and its model", flush=True)
            time.sleep(3)


wait_for_the_shop()
threads = [threading.Thread(target=customer, args=(f"customer-{n}", random.Random(f"{SEED}-{n}")), daemon=True) for n in range(8)]
for thread in threads:
    thread.start()
try:
    for thread in threads:
        thread.join()
except KeyboardInterrupt:
    pass
if failed:
    sys.exit(f"{failed} of {begun} sessions failed" + (", the last 20 in a row" if in_a_row >= 20 else ""))
