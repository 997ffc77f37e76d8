"""Read /metrics with Prometheus' own library."""

from prometheus_client.parser import text_string_to_metric_families


class Scraped:
    """The series of one response; `all`: their values by name and labels."""

    def __init__(self, text):
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.all = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def of(self, name, **labels):
        """Return the value with exactly these labels; 0 if it is missing."""
        return self.all.get((name, frozenset(labels.items())), 0)

    def sum(self, name, **labels):
        """Return the sum of all values with these labels, among others."""
        return sum(
            value for (one, has), value in self.all.items() if one == name and labels.items() <= dict(has).items()
        )

    def labelled(self, name):
        """Return the labels of all series with a value."""
        return [dict(labels) for (one, labels), value in self.all.items() if one == name and value]

    def values(self, name, label):
        """Return the values of a label."""
        return {labels[label] for labels in self.labelled(name)}

    def requests(self):
        """Return the number of requests by endpoint, model, backend and status."""
        names = ("endpoint", "model", "backend", "status")
        return {
            tuple(dict(labels)[name] for name in names): value
            for (one, labels), value in self.all.items()
            if one == "gateway_requests_total"
        }


async def scrape(site, key=None, *, close=False):
    """Return the metrics.  close: close the connection afterwards."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    if close:
        headers["connection"] = "close"
    answer = await site.client.get("/metrics", headers=headers)
    assert answer.status_code == 200, answer.text
    return Scraped(answer.text)
