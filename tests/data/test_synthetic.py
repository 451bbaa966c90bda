import torch

from varscale.data import GaussianTasks


def test_tasks_are_a_pure_function_of_their_number():
    tasks = GaussianTasks(spread=torch.ones(4), noise=torch.ones(4), n_shot=2)
    whole = tasks.batch(0, 6)
    part = tasks.batch(4, 2)
    assert torch.equal(whole.query[4:], part.query)
    assert torch.equal(whole.support_labels[4:], part.support_labels)
    other = GaussianTasks(spread=torch.ones(4), noise=torch.ones(4), n_shot=2, stream="test")
    assert not torch.equal(other.batch(4, 2).query, part.query)


def test_items_have_the_spread_and_noise_asked_for():
    spread, noise = torch.tensor([3.0, 0.5]), torch.tensor([0.5, 2.0])
    tasks = GaussianTasks(spread=spread, noise=noise, n_shot=1, n_query=200, offset=7.0)
    episode = tasks.batch(0, 50)
    by_class = episode.query.view(50, 200, 5, 2)
    torch.testing.assert_close(by_class.std(1).mean((0, 1)), noise, rtol=0.05, atol=0)
    torch.testing.assert_close(by_class.mean(1).std((0, 1)), spread, rtol=0.15, atol=0)
    assert abs(episode.query.mean().item() - 7) < 0.5
    assert torch.equal(episode.query_labels[0, :6], torch.tensor([0, 1, 2, 3, 4, 0]))
