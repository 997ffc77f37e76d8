"""Test the budget that limits retries."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.routing import RetryBudget


def spent(budget):
    """Spend all retries and return their number."""
    count = 0
    while budget.again():
        count += 1
    return count


def test_retry_budget_grants_ten_and_one_for_each_fifth_request():
    budget = RetryBudget()
    assert spent(budget) == 10
    for _ in range(4):
        budget.first()
    assert not budget.again()
    budget.first()
    assert spent(budget) == 1


def test_retry_budget_saves_at_most_ten():
    budget = RetryBudget()
    for _ in range(10_000):
        budget.first()
    assert spent(budget) == 10


@given(st.lists(st.booleans(), max_size=400))
def test_retry_budget_never_exceeds_ten_and_a_fifth_of_the_requests(retried):
    budget, firsts, retries = RetryBudget(), 0, 0
    for again in retried:
        if again:
            retries += budget.again()
        else:
            budget.first()
            firsts += 1
        assert retries <= 10 + 0.2 * firsts
