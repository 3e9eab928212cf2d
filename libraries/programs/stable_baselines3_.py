"""Learn to act with stable-baselines3: policy gradients and Q-learning in a world of one's own."""

import gymnasium
import numpy as np
import torch
from outcome import place, tell
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy


class Corridor(gymnasium.Env):
    """Walk to the right end of a corridor; steps cost."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.left = int(self.np_random.integers(1, 8)), 20
        return self._seen(), {}

    def _seen(self):
        return np.array([self.place / 5 - 1, self.left / 10 - 1], np.float32)

    def step(self, action):
        self.place, self.left = self.place + 2 * int(action) - 1, self.left - 1
        done = self.place in (0, 10)
        reward = 1.0 if self.place == 10 else -0.05
        return self._seen(), reward, done, self.left == 0, {}


class Losses(BaseCallback):
    """Keep what the learner logs."""

    def __init__(self):
        super().__init__()
        self.kept = []

    def _on_step(self):
        return True

    def _on_rollout_start(self):
        logged = self.logger.name_to_value
        self.kept.append([float(logged[k]) for k in sorted(logged) if k.startswith("train/")])


torch.manual_seed(0)
for cls, settings in (
    (PPO, {"n_steps": 64, "batch_size": 32, "n_epochs": 4}),
    (A2C, {"n_steps": 16}),
    (DQN, {"learning_starts": 50, "buffer_size": 500, "target_update_interval": 100}),
):
    name = cls.__name__
    model = cls("MlpPolicy", Corridor(), seed=3, device="cpu", **settings)
    losses = Losses()
    model.learn(400, callback=losses, log_interval=None)
    if name != "DQN":
        tell(f"{name}.logged", losses.kept[1:])
    observations = np.linspace(-1, 1, 10, dtype=np.float32).reshape(5, 2)
    actions, _ = model.predict(observations, deterministic=True)
    tell(f"{name}.actions", [int(a) for a in actions])
    world = Corridor()
    world.reset(seed=5)
    mean, deviation = evaluate_policy(model, world, n_eval_episodes=3, warn=False)
    tell(f"{name}.rewards", [float(mean), float(deviation)])
    tensors, _ = model.policy.obs_to_tensor(observations)
    with torch.no_grad():
        seen = model.q_net(tensors) if name == "DQN" else model.policy.predict_values(tensors)
    tell(f"{name}.values", seen)
    model.save(place(f"{name}.zip"))
    again = cls.load(place(f"{name}.zip"), device="cpu")
    same = (again.predict(observations, deterministic=True)[0] == actions).all()
    tell(f"{name}.again", bool(same))
