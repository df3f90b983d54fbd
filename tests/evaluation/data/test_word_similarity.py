"""Word pairs: rows of a table, and pairs across languages by hand."""

from official_cmlm.evaluation.data.word_similarity import cross, parse_pairs


def test_columns_by_name():
    """In any order and case; an average goes before annotators."""
    header = "Annotator 1,WORD_2,Word 1,average"
    pairs = parse_pairs(['1,b,"a, or so",5', "1,,a,5", "1,b,a,", "1,b,a,nan", "b,a"], "s", header)
    assert pairs.rows == [("1", "a, or so", "b", 5.0)] and pairs.skipped == 4
    # Columns have numbers where no line names them.
    assert parse_pairs(["7\ta\tb\tn\t2", "a\tc"], "s").rows == [("7", "a", "b", 2.0)]


def test_crossed_pairs_by_hand():
    """Both words are crossed, scores averaged; too different scores and unshared rows are left."""
    english = {"1": ("arm", "muscle", 1.0), "2": ("big", "small", 0.2), "3": ("x", "y", 5.0)}
    spanish = {"1": ("brazo", "músculo", 2.2), "2": ("grande", "chico", 1.5), "4": ("z", "w", 1.0)}
    pairs = cross(english, spanish)
    assert list(zip(pairs.first, pairs.second)) == [("arm", "músculo"), ("muscle", "brazo")]
    assert pairs.gold.tolist() == [1.6, 1.6]
