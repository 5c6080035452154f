#!/usr/bin/python3
"""The pages of dtrc plan --report and dtrc compare --report, opened in headless Chromium.

    run_report.py --dtrc build/release/bin/dtrc [--keep DIR]

Each page is opened as on a desk and on a phone, light and dark, with probe.js added at its end: the curves, bands and
tables are there, no text overlaps other text or leaves the page, contrasts suffice, nothing is loaded, the console is
silent. Without Chromium everything is skipped. --keep leaves pages and screenshots in DIR.
Last line: "N passed, N failed, N skipped".
"""
import argparse
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "hostile"))
from harness import TRACES, mlp  # noqa: E402

PLANNING = os.path.join(os.path.dirname(TRACES), "planning")
VIEWS = {"desk": (1200, 900, False), "desk-dark": (1200, 900, True), "phone": (390, 800, False),
         "phone-dark": (390, 800, True)}
EVIL = "</title><script>document.title='owned'</script>\"'&<b>"


class Browser:
    def __init__(self, path):
        self.path, self.profile = path, tempfile.mkdtemp(prefix="dtrc-chromium-")

    def run(self, page, width, height, dark, *more):
        cmd = [self.path, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
               "--virtual-time-budget=5000",
               f"--user-data-dir={self.profile}", f"--window-size={width},{height}", "--enable-logging=stderr",
               f"--blink-settings=preferredColorScheme={0 if dark else 1}", *more, "file://" + page]
        r = subprocess.run(cmd, capture_output=True, text=True, timeout=120)
        return r.stdout, [x for x in r.stderr.splitlines() if "CONSOLE" in x]

    def close(self):
        shutil.rmtree(self.profile, ignore_errors=True)


def find_browser():
    """None, and why, where Chromium is not there or does not start (no memory for it, a locked-down kernel)."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not path:
        return None, "no chromium here"
    browser = Browser(path)
    with tempfile.NamedTemporaryFile("w", suffix=".html") as f:
        f.write("<title>a</title><script>document.title = 'it ' + 'runs'</script>")
        f.flush()
        try:
            out, _ = browser.run(f.name, 400, 400, False, "--dump-dom")
        except (OSError, subprocess.TimeoutExpired) as e:
            return None, f"chromium does not start: {e}"
    return (browser, "") if "it runs" in out else (None, "chromium does not start")


# A window is never narrower than 500 pixels; a frame may be.
FRAME = """<!DOCTYPE html><title>no answer</title><body style="margin:0">
<script>addEventListener('message', e => {{ document.title = 'probe ' + e.data; }})</script>
<iframe src="{src}" width="{width}" height="{height}" style="border:0"></iframe>"""


def probe(browser, page, view):
    """What probe.js found, and complaints of the console."""
    width, height, dark = VIEWS[view]
    text, probed, frame = open(page, encoding="utf-8").read(), page[:-5] + "-probed.html", page[:-5] + "-frame.html"
    with open(probed, "w", encoding="utf-8") as f:
        f.write(text.replace("</body>", "<script>" + open(os.path.join(HERE, "probe.js")).read() + "</script></body>"))
    with open(frame, "w", encoding="utf-8") as f:
        f.write(FRAME.format(src=os.path.basename(probed), width=width, height=height))
    dom, console = browser.run(frame, width, height, dark, "--dump-dom")
    found = re.search(r"<title>probe (.*?)</title>", dom, re.S)
    os.unlink(probed)
    os.unlink(frame)
    assert found, f"the probe did not run: {console} {dom[:300]}"
    return json.loads(html.unescape(found[1])), console


def check(p, console, view, wants):
    width, _, dark = VIEWS[view]
    assert not console, f"console: {console}"
    assert p["width"] == width and p["dark"] == dark, f"not this view: {p['width']}, dark {p['dark']}"
    assert p["scroll"] <= p["width"], f"the page is {p['scroll']} wide, the window {p['width']}"
    assert p["title"].startswith("dtrc "), f"the title is {p['title']}"
    assert not p["outside"] and p["scripts"] == 2, f"links {p['outside']}, scripts {p['scripts']} (one is the probe)"
    assert not p["overlaps"], f"labels overlap: {p['overlaps']}"
    assert p["text"] >= 4.5, f"text has a contrast of {p['text']:.2f}"
    assert p["lines"] >= 3, f"a curve has a contrast of {p['lines']:.2f}"
    # The table of measured runs: as planned, without a budget, and a budget that no program can meet.
    p["same"] = sum(r[-1] == "same bits" for r in p["rows"])
    p["refused"] = sum(r[-1].startswith("status 3: ") for r in p["rows"])
    for key, least in wants.items():
        assert p[key] >= least, f"{key}: {p[key]}, expected {least}"


def check_numbers(p, rows):
    """Every row of the JSON stands in the table, at the budgets in order."""
    table = [r for r in p["rows"] if r[0] in {x["planner"] for x in rows} and len(r) == 9]
    possible = [x for x in rows if x["budget_bytes"] >= x["floor_bytes"]]
    assert len(table) == len(possible), f"{len(table)} rows, expected {len(possible)}"
    for cells, x in zip(table, possible):
        assert cells[0] == x["planner"] and cells[8].split(":")[0] == x["status"], f"{cells} {x}"
        if x["overhead"] is None:
            assert not any(cells[1:7]), f"{cells} {x}"
            continue
        assert abs(float(cells[1].split()[0]) - 100 * x["overhead"]) < .0051, f"{cells} {x}"
        assert cells[5:7] == [str(x["recomputed_runs"]), str(x["evictions"])], f"{cells} {x}"


def dtrc(opt, *args):
    r = subprocess.run([os.path.abspath(opt.dtrc), *args], capture_output=True, text=True)
    assert r.returncode == 0, f"dtrc {args}: status {r.returncode}\n{r.stderr}"
    return r.stdout


def pages(opt, folder):
    """(name, page, rows of JSON or None, what must be there at least)"""
    gpt = os.path.join(TRACES, "gpt_mini", "model.onnx")
    evil = os.path.join(folder, "<i>&'.onnx")
    with open(evil, "wb") as f:
        f.write(mlp(("x", EVIL, "b\n\x1b[31m\u202e", "w2", "y"), (64, 256, 3)).SerializeToString())
    diamond = os.path.join(PLANNING, "diamond.json")

    def compare(name, model, *args):
        page = os.path.join(folder, name + ".html")
        rows = json.loads(dtrc(opt, "compare", model, "--threads", "1", "--time-limit", "1", "--json", "--report", page,
                               *args))
        return page, rows

    page, rows = compare("gpt", gpt, "--budgets", "100%,90%,80%,70%,65%,50%")
    # none has a plan at one budget only, and no curve
    yield "compare", page, rows, {"curves": 9, "dots": 25, "bands": 12, "blocks": 200}
    page, rows = compare("evil", evil, "--budgets", "150%,1K", "--measure")
    yield "compare-names", page, rows, {"dots": 11, "bands": 2, "blocks": 10, "same": 3, "refused": 1}
    page, rows = compare("diamond", diamond, "--accounting", "bytes", "--budgets", "450,420,400,1")
    yield "compare-trace", page, rows, {"curves": 9, "dots": 26, "bands": 3}
    page, rows = compare("nothing", diamond, "--accounting", "bytes", "--budgets", "1,2")
    yield "compare-nothing", page, rows, {}
    page = os.path.join(folder, "plan.html")
    dtrc(opt, "plan", gpt, "--threads", "1", "--budget", "70%", "--report", page)
    yield "plan", page, None, {"bands": 4, "blocks": 100}


def main():
    ap = argparse.ArgumentParser(description="Reports in a browser.")
    ap.add_argument("--dtrc", required=True)
    ap.add_argument("--keep", help="leave pages and screenshots here")
    opt = ap.parse_args()
    browser, why = find_browser()
    if not browser:
        print(f"skip: {why}\n0 passed, 0 failed, 1 skipped")
        return 0
    folder = os.path.abspath(opt.keep) if opt.keep else tempfile.mkdtemp(prefix="dtrc-report-")
    os.makedirs(folder, exist_ok=True)
    passed = failed = 0
    for name, page, rows, wants in pages(opt, folder):
        for view in VIEWS:
            try:
                p, console = probe(browser, page, view)
                check(p, console, view, wants)
                if rows:
                    check_numbers(p, rows)
                if wants.get("blocks"):
                    assert p["named"], "nothing is named under the pointer"
                passed += 1
                print(f"ok   {name} {view}", flush=True)
            except AssertionError as e:
                failed += 1
                print(f"FAIL {name} {view}: {e}", flush=True)
            if opt.keep:
                width, height, dark = VIEWS[view]
                browser.run(page, width, 2 * height, dark, f"--screenshot={folder}/{name}-{view}.png")
    browser.close()
    if not opt.keep:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
