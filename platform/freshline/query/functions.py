"""Facts about Spark's functions that the parser does not know.

A function that the parser has never heard of may be an aggregate, so all of Spark's are named here; a test compares the
list with the functions that Spark has.
"""

from __future__ import annotations

from sqlglot import exp

AGGREGATES = frozenset(
    "any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine "
    "array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg bitmap_or_agg bool_and bool_or "
    "collect_list collect_set corr count count_if count_min_sketch covar_pop covar_samp every first first_value "
    "grouping grouping_id histogram_numeric hll_sketch_agg hll_union_agg kll_merge_agg_bigint kll_merge_agg_double "
    "kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kurtosis last last_value "
    "listagg max max_by mean measure median min min_by mode percentile percentile_approx percentile_cont "
    "percentile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy "
    "schema_of_variant_agg skewness some std stddev stddev_pop stddev_samp string_agg sum theta_intersection_agg "
    "theta_sketch_agg theta_union_agg try_avg try_sum tuple_intersection_agg_double tuple_intersection_agg_integer "
    "tuple_sketch_agg_double tuple_sketch_agg_integer tuple_union_agg_double tuple_union_agg_integer var_pop var_samp "
    "variance vector_avg vector_sum".split()
)
# They make several rows of one.
GENERATORS = frozenset(
    "explode explode_outer posexplode posexplode_outer inline inline_outer stack json_tuple variant_explode "
    "variant_explode_outer".split()
)
# Their result follows the order in which rows happen to be read.
UNORDERED = frozenset(
    "any_value approx_top_k approx_top_k_accumulate approx_top_k_combine array_agg collect_list collect_set first "
    "first_value histogram_numeric kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint "
    "kll_sketch_agg_double kll_sketch_agg_float last last_value listagg mode string_agg".split()
)
# Their value for an array is the same in whichever order its elements are.
ORDER_FREE = (exp.ArraySort, exp.ArraySize, exp.ArrayMax, exp.ArrayMin)
# Those of them that need rows beside a row, or more than its time, do not follow from the row alone.
TIME_WINDOWS = frozenset({"window", "session_window", "window_time"})
# The fields of what these functions give. Windows of one call of `window` have one length, so either names the window.
WINDOW_BOUNDS = frozenset({"start", "end"})

# Some classes have names of their own, which Spark does not know.
_UNORDERED_NODES = (
    exp.AnyValue,
    exp.ApproxTopK,
    exp.ArrayAgg,
    exp.ArrayUniqueAgg,
    exp.First,
    exp.FirstValue,
    exp.GroupConcat,
    exp.Last,
    exp.LastValue,
    exp.Mode,
)


def name_of(node: exp.Expr) -> str:
    """The name of a function in lower case, empty for what is no function."""
    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
        return str(node.this).lower()
    if isinstance(node, exp.Any):
        return "any"
    return node.sql_name().lower() if isinstance(node, exp.Func) else ""


def is_time_window(node: exp.Expr) -> bool:
    """Whether the node is a call of `window` whose windows follow from the row alone: its lengths are constants.

    >>> from freshline.sql.query_parser import parse_sql
    >>> tree = parse_sql("SELECT window(ts, '1 hour'), window(ts, v), window_time(w)")
    >>> [is_time_window(item) for item in tree.expressions]
    [True, False, False]

    In OVER it is one where its SELECT groups by it, so that each row there has one window.
    """
    if not isinstance(node, exp.Anonymous) or name_of(node) != "window" or not 2 <= len(node.expressions) <= 4:
        return False
    time, *lengths = node.expressions
    constant = all(isinstance(length, exp.Literal) and length.is_string for length in lengths)
    inside = [inner for inner in time.walk() if name_of(inner) in TIME_WINDOWS or isinstance(inner, exp.Query)]
    if not constant or inside:
        return False
    # Spark makes several rows of one below a condition too, before it asks the condition.
    place = _place_of(node)
    return place is None or (isinstance(place, exp.Window) and _is_grouped_by(node))


def is_session_key(node: exp.Expr) -> bool:
    """Whether the node is a call of `session_window` that its SELECT groups by, beside something else.

    Its sessions follow from the rows that share the other keys.

    >>> from freshline.sql.query_parser import parse_sql
    >>> tree = parse_sql("SELECT k FROM t GROUP BY k, session_window(ts, '1 hour')")
    >>> [is_session_key(key) for key in tree.args["group"].expressions]
    [False, True]
    """
    if not isinstance(node, exp.Anonymous) or name_of(node) != "session_window" or len(node.expressions) != 2:
        return False
    inside = [inner for part in node.expressions for inner in part.walk()]
    if any(name_of(inner) in TIME_WINDOWS or isinstance(inner, exp.Query) for inner in inside):
        return False
    return _place_of(node) is None and _is_grouped_by(node)


def _place_of(node: exp.Expr) -> exp.Expr | None:
    """The OVER, WHERE or ON of its own SELECT that a node stands in, None where it stands in none of these.

    A join or a condition around that SELECT reads its rows, and says nothing of how it makes them.
    """
    around = node.find_ancestor(exp.Window, exp.Where, exp.Join, exp.Select)
    return None if isinstance(around, exp.Select) else around


def _is_grouped_by(node: exp.Expr) -> bool:
    """Whether a node is written like a key by which its SELECT groups."""
    select = node.find_ancestor(exp.Select)
    group = None if select is None else select.args.get("group")
    return group is not None and any(key == node for key in group.expressions)


def is_aggregate(node: exp.Expr) -> bool:
    """Whether the node is a call of an aggregate function, not one over a window.

    >>> from sqlglot import parse_one
    >>> [is_aggregate(parse_one(text, dialect="spark")) for text in ("try_sum(a)", "any(a)", "abs(a)")]
    [True, True, False]
    """
    if not (isinstance(node, exp.AggFunc) or name_of(node) in AGGREGATES):
        return False
    return _window_of(node) is None


def _window_of(node: exp.Expr) -> exp.Window | None:
    """The window that the function is called over, None where there is none."""
    around = node.parent
    while isinstance(around, exp.IgnoreNulls | exp.RespectNulls | exp.Filter | exp.WithinGroup):
        around = around.parent
    return around if isinstance(around, exp.Window) and _is_called(around, node) else None


def _is_ordered(window: exp.Window) -> bool:
    """Whether the rows of a window have an order, by itself or by a window of WINDOW that it names."""
    if window.args.get("order"):
        return True
    name, select = window.args.get("alias"), window.find_ancestor(exp.Select)
    if name is None or select is None:
        return False
    named = select.args.get("windows") or ()
    return any(each.name.lower() == name.name.lower() and each.args.get("order") for each in named)


def _is_called(window: exp.Window, node: exp.Expr) -> bool:
    """Whether the node is the function of the window, rather than a part of its PARTITION BY or ORDER BY."""
    return any(inner is node for inner in window.this.walk())


def is_unordered(node: exp.Expr) -> bool:
    """Whether the value of an aggregate follows the order of reading.

    >>> from sqlglot import parse_one
    >>> tree = parse_one("SELECT collect_list(a), sort_array(collect_list(a))", dialect="spark")
    >>> [is_unordered(node) for node in tree.find_all(exp.ArrayAgg)]
    [True, False]
    """
    if not (isinstance(node, _UNORDERED_NODES) or name_of(node) in UNORDERED):
        return False
    window = _window_of(node)
    if window is None and not is_aggregate(node):
        return False
    if isinstance(node.this, exp.Order) or (window is not None and _is_ordered(window)):
        # WITHIN GROUP (ORDER BY ..), OVER (.. ORDER BY ..)
        return False
    around = node.parent if window is None else window.parent
    while isinstance(around, exp.IgnoreNulls | exp.RespectNulls | exp.Filter):
        around = around.parent
    if isinstance(around, exp.ArraySort) and around.expression is not None:
        return True  # what its own comparison takes for equal stays in the order of reading
    return not isinstance(around, (*ORDER_FREE, exp.WithinGroup))
