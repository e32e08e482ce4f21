"""Pages do in a browser what they are there for."""

import csv
import io
import json
from xml.etree import ElementTree

import pytest
from PIL import Image

from fedge.runner import files
from fedge.view.report import write_report
from tests.browser.conftest import keep, until
from tests.pages import NAMES, board_of, compare_once, copied, half_done
from tests.plans import plan_folder

OWN_FIGURES = {"hist": "submodels", "hiersfl": "cut", "sdfeel": "consensus"}
FOCUSED = """(() => {
  const focused = document.activeElement;
  const shown = focused.matches('.segments input') ? focused.nextSibling : focused;
  return [focused.id || focused.ariaLabel, getComputedStyle(shown).outlineStyle];
})()"""
DRAWN = "[...document.querySelectorAll('.plot')].map((plot) => [plot.id, plot.querySelectorAll('svg *').length])"


@pytest.fixture(scope="module")
def compared():
    return compare_once()


@pytest.fixture(scope="module")
def report(compared):
    return write_report(compared).as_uri()


def rows_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def drawn(page):
    """Return how many elements each figure has, once all are drawn."""
    until(page, f"{DRAWN}.every(([, count]) => count > 0)")
    return dict(page.evaluate(DRAWN))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_figure_of_every_algorithm_is_drawn(report, visit, width, dark):
    page = visit(report, width, dark)
    for number, name in enumerate(NAMES):
        page.click(f"label[for=run-{number}]")
        found = drawn(page)
        assert {"plot-curves", "plot-clients", "plot-traffic", "plot-network", "plot-labels"} <= set(found)
        assert {figure for figure in OWN_FIGURES.values() if f"plot-{figure}" in found} == {
            figure for owner, figure in OWN_FIGURES.items() if owner == name
        }
        assert min(found.values()) > 5
        assert "cannot be drawn" not in page.inner_text("#page")
        assert page.evaluate("document.documentElement.scrollWidth") == width  # nothing hangs over
        keep(page, f"report-{name}-{width}-{'dark' if dark else 'light'}")
    assert len(page.query_selector_all("#plot-network circle.late")) >= 1  # somebody was waited for
    paper = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (sum(map(int, paper[4:-1].split(","))) < 300) == dark


def test_axes_metrics_and_scales_switch(report, visit):
    page = visit(report)
    line = "#plot-curves path.line >> nth=0"
    seen = {page.get_attribute(line, "d")}
    for axis, title in (
        ("iteration", "local iterations"),
        ("simulated_seconds", "simulated time (s)"),
        ("bytes", "sent on all"),
    ):
        page.click(f"label[for=axis-{axis}]")
        assert title in page.text_content("#plot-curves svg")
        seen.add(page.get_attribute(line, "d"))
    page.click("label[for=logX]")
    seen.add(page.get_attribute(line, "d"))
    page.click("label[for=logY]")
    seen.add(page.get_attribute(line, "d"))
    page.select_option("#metric", "loss")
    seen.add(page.get_attribute(line, "d"))
    assert page.text_content("[data-figure=curves] h3") == "Test loss"
    assert len(seen) == 6  # rounds and iterations are alike but for their ticks
    assert page.evaluate("document.activeElement.id") != ""  # the focus stays where it was


def test_series_go_off_and_on_by_pointer_and_by_key(report, visit):
    page = visit(report)

    def count():
        return page.locator("#plot-curves path.line[data-series]").count()

    assert count() == 5
    page.click("#series-0")
    assert count() == 4
    assert page.get_attribute("#series-0", "aria-pressed") == "false"
    page.keyboard.press("Space")
    assert count() == 5
    page.click("#series-all")
    assert count() == 0
    assert "nothing to draw" in page.text_content("#plot-curves")
    page.keyboard.press("Enter")
    assert count() == 5


def test_values_are_read_under_the_pointer_and_by_arrow_keys(compared, report, visit):
    page = visit(report)
    drawn(page)
    page.focus("#plot-curves")
    page.keyboard.press("ArrowRight")
    bubble = page.locator("[data-figure=curves] .bubble")
    assert bubble.locator("p").text_content() == "round 1"
    lines = bubble.locator("li").all()
    told = {line.locator("span").text_content(): line.locator("b").text_content() for line in lines}
    assert told == {name: f"{100 * rows_of(compared / name)[0]['accuracy']:.1f}%" for name in NAMES}
    page.keyboard.press("End")
    assert bubble.locator("p").text_content() == "round 3"
    assert "round 3: " in page.text_content("[data-figure=curves] [aria-live]")
    page.keyboard.press("Escape")
    assert bubble.is_hidden()
    page.hover("#plot-curves", position={"x": 60, "y": 100})
    assert bubble.locator("p").text_content() == "round 1"
    page.click("label[for=run-1]")
    page.focus("#plot-network")
    page.keyboard.press("ArrowRight")
    assert page.text_content("[data-figure=network] .bubble p").startswith("client ")


def test_the_tab_key_reaches_everything_and_shows_where_it_is(report, visit):
    page = visit(report)
    drawn(page)
    wanted = set(
        page.evaluate("[...document.querySelectorAll('button, select, .plot')].map((e) => e.id || e.ariaLabel)")
    )
    reached, outlines = set(), set()
    for _ in range(len(wanted) + 40):
        page.keyboard.press("Tab")
        found = page.evaluate(FOCUSED)
        reached.add(found[0])
        if found[0]:
            outlines.add(found[1])
    assert wanted <= reached
    assert outlines == {"solid"}


def test_figures_and_numbers_are_saved(compared, report, visit, tmp_path):
    page = visit(report, dark=True)
    drawn(page)

    def save(button):
        with page.expect_download() as download:
            page.click(button)
        path = tmp_path / download.value.suggested_filename
        download.value.save_as(path)
        return path

    for name in ("curves", "clients", "traffic", "network", "labels"):
        picture = save(f"[data-figure={name}] button:text('SVG')").read_text()
        root = ElementTree.fromstring(picture)
        assert len(root.findall(".//*")) > 10
        assert "var(" not in picture
        assert "class=" not in picture
        assert root.find("{http://www.w3.org/2000/svg}rect").get("fill") == "#ffffff"  # as on paper, also in the dark
    with Image.open(save("[data-figure=curves] button:text('PNG')")) as image:
        assert image.format == "PNG"
        assert image.width == 1520
        assert len(image.convert("RGB").getcolors(10**6)) > 10
    rows = list(csv.DictReader(io.StringIO(save("#save-rows").read_text())))
    for name in NAMES:
        expected = rows_of(compared / name)
        found = [row for row in rows if row["run"] == name]
        assert [float(row["accuracy"]) for row in found] == [row["accuracy"] for row in expected]
        assert [float(row["cell_accuracies_2"]) for row in found] == [row["cell_accuracies"][2] for row in expected]
    links = list(csv.DictReader(io.StringIO(save("#save-links").read_text())))
    sent = sum(float(row["bytes"]) for row in links if row["run"] == "hist")
    assert sent == sum(rows_of(compared / "hist")[-1]["bytes"].values())


def test_seeds_have_a_band_and_each_of_them_a_line(compared, visit, tmp_path):
    for seed in range(3):
        place = copied(compared / "hist", tmp_path / f"sweep/seed={seed}")
        about = json.loads((place / "run.json").read_text())
        about["config"]["seed"] = seed
        (place / "run.json").write_text(json.dumps(about))
        rows = [row | {"accuracy": 0.5 + 0.1 * seed} for row in rows_of(place)]
        (place / "metrics.jsonl").write_text("".join(map(files.line, rows)))
    page = visit(write_report(tmp_path / "sweep").as_uri())
    assert "60.0% ± 24.8%" in page.inner_text("#page")  # 0.2484138, as in tests/view/test_page.py
    assert page.locator("#plot-curves path.band").count() == 1
    assert page.locator("#plot-curves path.line").count() == 1
    page.click("label[for=seeds]")
    assert page.locator("#plot-curves path.band").count() == 0
    assert page.locator("#plot-curves path.line.thin").count() == 3


def test_text_of_a_record_is_only_shown(compared, visit, tmp_path):
    nasty = "</script><img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
    place = copied(compared / "hist", tmp_path / "nasty", command=f"fedge run '{nasty}'", processor=nasty)
    about = json.loads((place / "run.json").read_text())
    about["config"] |= {"data": nasty, nasty: nasty}
    (place / "run.json").write_text(json.dumps(about))
    setting = json.loads((place / "setting.json").read_text())
    setting["labels"]["kinds"][0], setting["topology"]["each_client"] = nasty, {"cell": [nasty] * 6, "samples": "many"}
    (place / "setting.json").write_text(json.dumps(setting))
    page = visit(write_report(place).as_uri())
    page.locator("summary").click()
    assert page.title() == "nasty · fedge"
    assert page.locator("img").count() == 0
    assert nasty in page.text_content("#page")


def test_a_plan_is_drawn_and_kept(compared, visit, tmp_path):
    report = write_report(plan_folder(tmp_path / "plan", compared)).as_uri()
    for width, dark in ((1280, False), (390, True)):
        page = visit(report, width, dark)
        found = drawn(page)
        assert {"plot-front-bytes", "plot-front-client_memory", "plot-race", "plot-rates", "plot-curves"} <= set(found)
        assert "cannot be drawn" not in page.inner_text("#page")
        assert page.locator("#plot-front-bytes [data-setting]").count() == 3
        assert page.locator("#plot-front-bytes .ring").count() == 1
        assert page.locator("#plot-race path.line").count() == 5  # the settings, and the target
        assert page.evaluate("document.documentElement.scrollWidth") == width  # nothing hangs over
        told = page.inner_text("#page")
        assert all(words in told for words in ("2 of 2 fresh seeds", "twice as fast saves", "exclude=inputs rules out"))
        page.click("#gone")
        assert "diverged" in page.inner_text("#page")
        keep(page, f"plan-{width}-{'dark' if dark else 'light'}")
    with page.expect_download() as download:
        page.click("#save-race")
    download.value.save_as(tmp_path / "race.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "race.csv").read_text())))
    assert [float(row["accuracy"]) for row in rows[3:6]] == pytest.approx([0.61, 0.71, 0.81])


def test_a_plan_is_followed_while_it_is_made(compared, visit, tmp_path):
    place = plan_folder(tmp_path / "runs/mine", compared)
    answer = (place / "answer.json").rename(tmp_path / "answer.json")
    with files.locked(place), board_of(tmp_path / "runs") as address:
        listed, page = visit(f"{address}/"), visit(f"{address}/page?of=mine")
        assert listed.text_content("[data-run=mine] .state") == "running"
        assert "the search goes on" in page.inner_text("header")
        assert "The race so far" in page.inner_text("#page")
        lap = (place / "trials.jsonl").read_text().splitlines()[0].replace("lr=0.1", "lr=0.4")
        files.append(place / "trials.jsonl", f"{lap}\n")
        until(page, "page.plan.race.length === 5")
        assert page.locator("#plot-race path.line").count() == 6
        answer.rename(place / "answer.json")
        until(page, "page.plan.state === 'finished'")
        assert "HierFAVG with lr=0.1 is recommended" in page.inner_text("header")
        until(listed, "document.querySelector('[data-run=mine] .state').textContent === 'finished'")
        for one in (page, listed):
            one.goto("about:blank")


def test_a_run_is_followed_while_it_goes_on(compared, visit, tmp_path):
    place, (second, third) = half_done(compared / "hist", tmp_path / "live")
    copied(compared / "sdfeel", tmp_path / "done")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/run.json").write_text("{")
    with files.locked(place), board_of(tmp_path) as address:
        listed, page = visit(f"{address}/"), visit(f"{address}/page?of=live", 390)
        assert listed.text_content("[data-run=live] .state") == "running"
        assert "damaged" in listed.text_content("[data-run=broken] .problem")
        assert listed.locator("[data-run=done] .spark").count() == 1
        keep(listed, "board-1280")
        page.focus("#plot-curves")
        points = "page.runs[0].columns.round.length"
        assert page.evaluate(points) == 1
        files.append(place / "metrics.jsonl", second)
        until(page, f"{points} === 2")
        waits = "document.querySelector('#page').innerHTML.includes('Who waited for whom in')"
        assert not page.evaluate(waits)
        files.write_bytes(place / "ledger.json", (compared / "hist/ledger.json").read_bytes())  # as with a checkpoint
        until(page, waits)
        assert "who waited is counted up to round 3." in page.text_content("[data-figure=network] .note")
        files.append(place / "metrics.jsonl", third)
        until(page, f"{points} === 3")
        assert page.get_attribute("#plot-curves path.line", "d").count("L") == 2
        assert "up to round" not in page.inner_html("#page")  # the curves have come to where links were counted
        assert "3" in page.text_content("#page table tbody")
        assert page.evaluate("document.activeElement.id") == "plot-curves"  # nobody is thrown out of a figure
        until(listed, "document.querySelector('[data-run=live]').textContent.includes('3')")
        listed.fill("#find", "sdfeel")
        assert listed.locator("tbody tr").count() == 1
        listed.fill("#find", "")
        for name in ("live", "done"):
            listed.check(f"[data-run={name}] input")
        listed.click("#overlay")
        listed.wait_for_selector("#plot-curves path.line")
        assert listed.locator("#plot-curves path.line").count() == 2
        keep(page, "board-live-390")
        keep(listed, "board-overlay-1280")
        for one in (page, listed):
            one.goto("about:blank")
