"""Somebody at a browser that runs no scripts: reads a page, fills in what its labels name, presses its buttons.

Enough of HTML for the pages of the management, and no more: forms with their hidden fields, labels, links, elements with
an id. Python's standard library only.
"""

import html.parser
import http.client
import time
import urllib.parse

SECONDS_TO_APPEAR = 20


class Puzzled(Exception):
    """What the person in front of the page would be puzzled by, in one line."""


class Browser:
    def __init__(self, origin):
        self.origin = urllib.parse.urlsplit(origin)
        self.cookies = {}
        self.path = "/"
        self.page = None

    def visit(self, path):
        """Opens a page. The first one waits until somebody listens."""
        deadline = time.monotonic() + SECONDS_TO_APPEAR
        while True:
            try:
                return self.request("GET", path)
            except ConnectionRefusedError:
                if self.page or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def fill(self, label, value):
        """Writes into the field, or chooses in the list, that has this label."""
        field = self.page.field(label)
        if field.options is not None and value not in field.options:
            raise Puzzled(f"“{label}” has no {value}, but {', '.join(field.options)}")
        field.value = value

    def choose(self, label):
        """Ticks the box or takes the choice that has this label."""
        field = self.page.field(label)
        if field.kind not in ("checkbox", "radio"):
            raise Puzzled(f"“{label}” cannot be ticked")
        for other in field.form.fields:
            if field.kind == "radio" and other.name == field.name:
                other.is_on = False
        field.is_on = True

    def press(self, text):
        """Sends the form that has this button."""
        forms = [form for form in self.page.forms if text in form.buttons]
        if len(forms) != 1:
            raise Puzzled(f"{len(forms)} buttons “{text}” at {self.path}")
        form = forms[0]
        body = urllib.parse.urlencode([(field.name, field.value) for field in form.fields if field.is_on])
        self.request(form.method, form.action or self.path, body)

    def follow(self, text):
        if text not in self.page.links:
            raise Puzzled(f"no link “{text}” at {self.path}")
        self.visit(urllib.parse.urljoin(self.path, self.page.links[text]))

    def request(self, method, path, body=None):
        """Asks, and goes where the answer leads. A page that says no is what puzzles."""
        while True:
            connection = http.client.HTTPConnection(self.origin.hostname, self.origin.port, timeout=60)
            headers = {"Accept": "text/html", "Cookie": "; ".join(f"{k}={v}" for k, v in self.cookies.items())}
            if body is not None:
                headers["Content-Type"] = "application/x-www-form-urlencoded"
                headers["Origin"] = self.origin.geturl()
            connection.request(method, urllib.parse.urldefrag(path).url, body, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
            connection.close()
            for cookie in answer.headers.get_all("Set-Cookie", []):
                name, _, value = cookie.split(";")[0].partition("=")
                self.cookies[name] = value
            self.path = path
            if answer.status not in (302, 303):
                break
            method, path, body = "GET", urllib.parse.urljoin(path, answer.headers["Location"]), None
        self.page = Page(text)
        if answer.status >= 400:
            raise Puzzled(f"{method} {path} answers {answer.status}: {' '.join(self.page.alerts) or text[:300]}")


class Form:
    def __init__(self, attributes):
        self.method = attributes.get("method", "get").upper()
        self.action = attributes.get("action", "")
        self.fields = []
        self.buttons = []


class Field:
    def __init__(self, form, attributes, kind):
        self.form = form
        self.kind = kind
        self.name = attributes.get("name", "")
        self.id = attributes.get("id")
        self.value = attributes.get("value", "")
        # What is sent: boxes and choices only when they are ticked.
        self.is_on = kind not in ("checkbox", "radio") or "checked" in attributes
        # Of a list: the values.
        self.options = None


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.forms = []
        self.links = {}
        self.texts = {}
        self.alerts = []
        self.labels = []
        # Elements that are open: tag, attributes, the text so far.
        self.open = []
        self.feed(text)
        self.close()

    def field(self, label):
        """The one field that this label is for."""
        ids = [at for text, at in self.labels if text == label]
        found = [field for form in self.forms for field in form.fields if field.id in ids]
        if len(found) != 1:
            known = ", ".join(text for text, _ in self.labels)
            raise Puzzled(f"{len(found)} fields “{label}” on the page, which has: {known}")
        return found[0]

    def handle_starttag(self, tag, attrs):
        attributes = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.forms.append(Form(attributes))
        elif tag in ("input", "select", "textarea") and self.forms and "name" in attributes:
            form = self.forms[-1]
            form.fields.append(Field(form, attributes, attributes.get("type", tag)))
            if tag == "select":
                form.fields[-1].options = []
        elif tag == "option":
            field = self.forms[-1].fields[-1]
            if not field.options or "selected" in attributes:
                field.value = attributes.get("value", "")
            field.options.append(attributes.get("value", ""))
        if tag not in VOID:
            self.open.append((tag, attributes, []))

    def handle_data(self, data):
        for _, _, text in self.open:
            text.append(data)

    def handle_endtag(self, tag):
        while self.open:
            closed, attributes, parts = self.open.pop()
            self.keep(closed, attributes, "".join(parts))
            if closed == tag:
                return

    def keep(self, tag, attributes, raw):
        text = " ".join(raw.split())
        if "id" in attributes:
            self.texts[attributes["id"]] = raw if tag == "pre" else text
        if attributes.get("role") in ("alert", "status") or "error" in attributes.get("class", "").split():
            self.alerts.append(text)
        if tag == "a" and "href" in attributes:
            self.links[text] = attributes["href"]
        elif tag == "label":
            self.labels.append((text, attributes.get("for")))
        elif tag == "button" and self.forms:
            self.forms[-1].buttons.append(text)
        elif tag == "main":
            self.texts["main"] = text


VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
