"""The support bot of a shop: a service that calls a model, as any other does.

    POST /chat {"customer": "ada", "question": "is it in stock?"}  answers {"chat": "…", "answer": "…"}
    POST /rate {"chat": "…", "pleased": true}

Three lines have to do with learning; they are marked with "agl:". Nothing here
needs to be installed.
"""

import json
import os
import urllib.error
import urllib.request
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODEL_URL = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:4748/v1")
MODEL = os.environ.get("OPENAI_MODEL", "policy")
PORT = int(os.environ.get("SHOP_PORT", "8400"))

rollouts = {}  # agl's name of each chat that was not rated yet


def post(url, body, **headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response), response.headers


def chat(customer, question):
    name = uuid.uuid4().hex
    body = {"model": MODEL, "max_tokens": 16, "messages": [{"role": "user", "content": question}]}
    # agl: the calls of a session have its name
    reply, headers = post(MODEL_URL + "/chat/completions", body, X_Agl_Session=name, X_Agl_User=customer)
    rollouts[name] = headers["Agl-Rollout"]
    return {"chat": name, "answer": reply["choices"][0]["message"]["content"]}


def rate(name, pleased):
    if not rollouts.get(name):
        return {}  # it was rated before, or was not recorded because agl's store was away
    session = MODEL_URL + "/agl/sessions/" + rollouts[name]
    post(session + "/reward", {"value": 1 if pleased else 0, "source": "customer"})  # agl: how good it was
    del rollouts[name]  # a rating that was not stored can be given again
    try:
        post(session + "/end", {})  # agl: it is over
    except urllib.error.HTTPError as error:
        if error.code != 410:  # it had ended by itself, a minute after its last call
            raise
    return {}


class Shop(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = 200
        try:
            if self.path == "/chat":
                answer = chat(body["customer"], body["question"])
            else:
                answer = rate(body["chat"], body["pleased"])
        except Exception as error:  # the customer hears of it, the shop goes on
            status, answer = 502, {"error": repr(error)}
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


if __name__ == "__main__":
    print(f"the shop is open at http://127.0.0.1:{PORT}; its model is at {MODEL_URL}", flush=True)
    try:
        ThreadingHTTPServer(("127.0.0.1", PORT), Shop).serve_forever()
    except KeyboardInterrupt:
        pass
