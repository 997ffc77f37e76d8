"""Test the paths of sparklines: lines with gaps, areas and bars."""

from gateway.server.admin.hour import area_path, bars_path, line_path


def test_sparkline_of_counts_spans_the_box():
    assert line_path([0, 2, 1], 2) == "M0,48.0 150,4.0 300,26.0"
    assert area_path([0, 2], 2) == "M0,48.0 0,48.0 300,4.0 300,48.0z"


def test_sparkline_has_gaps_where_there_is_no_value():
    assert line_path([None, 1, None, 1, 1], 1) == "M71,4.0 75,4.0 M225,4.0 300,4.0"
    assert area_path([1, None], 1) == "M0,48.0 0,4.0 0,48.0z"


def test_sparkline_of_zeros_is_the_base_line():
    assert line_path([0, 0], 0) == "M0,48.0 300,48.0"


def test_sparkline_of_nothing_is_empty():
    assert line_path([], 1) == area_path([None], 1) == bars_path([0, None], 1) == ""
    assert line_path([1], 1) == "M0,4.0 0,4.0"


def test_sparkline_bars_stand_on_the_base_line():
    assert bars_path([0, 1, 2], 2) == "M150,26.0V48 M300,4.0V48"
