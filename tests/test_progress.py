"""Progress lines: at a bounded rate, with a rate and a time left that belong to the phase in progress."""

from muvap_assets.progress import ProgressLog, format_seconds


class Watched:
    """A log on a clock that a test sets."""

    def __init__(self):
        self.lines, self.now = [], 100.0
        self.log = ProgressLog(self.lines.append, "asset", interval_sec=10, clock_sec=lambda: self.now)

    def at(self, seconds, done, total, item="x"):
        self.now = 100.0 + seconds
        self.log(done, total, item)


def test_a_thousand_items_in_half_a_minute_give_a_line_every_ten_seconds_and_a_last_one():
    watched = Watched()
    for done in range(1, 1001):
        watched.at(done * 0.03, done, 1000)
    assert len(watched.lines) == 3
    assert watched.lines[-1].startswith("asset: 1000/1000 (33.3/s), x")


def test_a_line_says_done_total_rate_time_left_and_the_current_item():
    watched = Watched()
    watched.at(1, 1, 100)
    watched.at(10, 20, 100, "clip_7")
    assert watched.lines == ["asset: 20/100 (2.0/s, about 40s left), clip_7"]


def test_a_second_phase_is_timed_from_its_own_beginning():
    watched = Watched()
    watched.at(50, 10, 10)
    watched.at(60, 0, 40, "first of the next")
    watched.at(70, 20, 40, "clip_8")
    assert watched.lines == [
        "asset: 10/10 (0.2/s), x",
        "asset: 0/40, first of the next",
        "asset: 20/40 (2.0/s, about 10s left), clip_8",
    ]


def test_a_phase_that_is_told_done_again_has_one_last_line():
    watched = Watched()
    watched.at(1, 3, 3)
    watched.at(2, 3, 3)
    assert len(watched.lines) == 1


def test_a_phase_of_the_same_total_begins_again_where_fewer_are_done():
    watched = Watched()
    watched.at(100, 4, 4)
    watched.at(104, 1, 4)
    watched.at(110, 4, 4)
    assert watched.lines[-1] == "asset: 4/4 (0.7/s), x"


def test_durations_read_as_people_say_them():
    assert [format_seconds(value) for value in (9, 75, 3700)] == ["9s", "1m15s", "1h01m"]
