"""What a gateway says at /metrics, as Prometheus' own library reads it."""

from prometheus_client.parser import text_string_to_metric_families


class Scraped:
    """`all`: of each series the value, by its name and its labels."""

    def __init__(self, text):
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.all = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def of(self, name, **labels):
        """The value with these labels and no others; 0 where there is none."""
        return self.all.get((name, frozenset(labels.items())), 0)

    def sum(self, name, **labels):
        """All with these labels, whatever others they have."""
        return sum(
            value for (one, has), value in self.all.items() if one == name and labels.items() <= dict(has).items()
        )

    def labelled(self, name):
        """The labels of all series with a value."""
        return [dict(labels) for (one, labels), value in self.all.items() if one == name and value]

    def values(self, name, label):
        return {labels[label] for labels in self.labelled(name)}

    def requests(self):
        """How many there were: by endpoint, model, backend and status."""
        names = ("endpoint", "model", "backend", "status")
        return {
            tuple(dict(labels)[name] for name in names): value
            for (one, labels), value in self.all.items()
            if one == "gateway_requests_total"
        }


async def scrape(site, key=None, *, close=False):
    """close: the connection behind it, so that the next one may be anybody's."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    if close:
        headers["connection"] = "close"
    answer = await site.client.get("/metrics", headers=headers)
    assert answer.status_code == 200, answer.text
    return Scraped(answer.text)
