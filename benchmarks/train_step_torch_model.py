"""The models of Hugging Face's parts that `benchmarks.train_step` compares with."""

import itertools
from collections.abc import Callable

import torch
from torch import nn
from transformers import BertConfig, BertModel
from transformers.models.bert.modeling_bert import BertOnlyMLMHead

PROJECTIONS = 15
# Label of tokens that are not predicted, as in Hugging Face's losses.
IGNORED = -100


class Projection(nn.Module):
    """CMLM's N networks, the first of them the identity (CMLM §2 and appendix C)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        sizes = [width, 2 * width, 2 * width, width]
        self.kernels = nn.ParameterList(
            nn.Parameter(torch.randn(PROJECTIONS - 1, a, b) * 0.02)
            for a, b in itertools.pairwise(sizes)
        )
        self.biases = nn.ParameterList(
            nn.Parameter(torch.zeros(PROJECTIONS - 1, 1, size)) for size in sizes[1:]
        )

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Maps `[batch, width]` to `[batch, N, width]`."""
        hidden = vectors.expand(PROJECTIONS - 1, *vectors.shape)
        for layer, (kernel, bias) in enumerate(zip(self.kernels, self.biases)):
            hidden = torch.baddbmm(bias, hidden.relu() if layer else hidden, kernel)
        return torch.cat([vectors[:, None], hidden.transpose(0, 1)], dim=1)


class Model(nn.Module):
    """The objective's loss of a batch."""

    def __init__(
        self,
        objective: str,
        vocab_size: int,
        layers: int,
        width: int,
        dropout: float = 0.1,
        seq_length: int = 256,
        with_masks: bool = True,
    ) -> None:
        """Draws initial weights; `with_masks`: whether attention leaves padding out."""
        super().__init__()
        self.objective, self.seq_length, self.with_masks = objective, seq_length, with_masks
        config = BertConfig(
            vocab_size=vocab_size,
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=width // 64,
            intermediate_size=4 * width,
            max_position_embeddings=seq_length + PROJECTIONS,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
            attn_implementation="sdpa",
        )
        self.bert = BertModel(config, add_pooling_layer=False)
        if objective == "contrastive":
            self.mlp = nn.Linear(width, width)
        else:
            self.head = BertOnlyMLMHead(config)
            # Hugging Face's whole model ties these in the same way.
            self.head.predictions.decoder.weight = self.bert.embeddings.word_embeddings.weight
            self.head.predictions.decoder.bias = self.head.predictions.bias
        if objective == "cmlm":
            self.projection = Projection(width)

    def encode(self, mask: torch.Tensor, **inputs: torch.Tensor) -> torch.Tensor:
        """Returns the last block's outputs."""
        mask = mask if self.with_masks else None
        return self.bert(attention_mask=mask, **inputs).last_hidden_state

    def forward(self, batch: dict[str, dict[str, torch.Tensor]]) -> torch.Tensor:
        """Returns the mean loss, a float32 scalar."""
        return getattr(self, self.objective)(*batch.values())

    def cmlm(self, first: dict, masked: dict) -> torch.Tensor:
        """Predicts the second sentence's masked tokens, given the first one's mean vector."""
        real = first["mask"][:, :, None].float()
        outputs = self.encode(first["mask"], input_ids=first["ids"])
        projected = self.projection((outputs * real).sum(1) / real.sum(1))
        rows, length = masked["ids"].shape
        words = self.bert.embeddings.word_embeddings(masked["ids"])
        ones = masked["mask"].new_ones(rows, PROJECTIONS)
        positions = torch.arange(self.seq_length + PROJECTIONS, device=words.device)
        outputs = self.encode(
            torch.cat([masked["mask"], ones], dim=1),
            inputs_embeds=torch.cat([words, projected.to(words.dtype)], dim=1),
            position_ids=torch.cat([positions[:length], positions[self.seq_length :]])[None],
        )
        return self._compute_masked_loss(outputs[:, :length], masked)

    def mlm(self, masked: dict) -> torch.Tensor:
        """Predicts masked tokens from their segment."""
        outputs = self.encode(masked["mask"], input_ids=masked["ids"])
        return self._compute_masked_loss(outputs, masked)

    def contrastive(self, first: dict, second: dict) -> torch.Tensor:
        """Compares two passes with other dropout masks, the first token through a dense layer."""
        ids = torch.cat([first["ids"], second["ids"]])
        mask = torch.cat([first["mask"], second["mask"]])
        outputs = self.encode(mask, input_ids=ids)[:, 0]
        vectors = nn.functional.normalize(torch.tanh(self.mlp(outputs)), dim=-1)
        one, other = vectors.chunk(2)
        own = torch.arange(len(one), device=one.device)
        return nn.functional.cross_entropy(one @ other.T / 0.05, own)

    def _compute_masked_loss(self, outputs: torch.Tensor, masked: dict) -> torch.Tensor:
        """Computes logits at `predicted` alone, positions in the flat batch."""
        outputs = outputs.reshape(-1, outputs.shape[-1])
        logits = self.head(outputs.index_select(0, masked["predicted"]))
        return nn.functional.cross_entropy(logits, masked["labels"])


def make_step(
    model: nn.Module, loss_of: Callable, device: str, precision: str
) -> Callable[[dict], torch.Tensor]:
    """Returns a step of training on a batch; `loss_of` is the model itself, or compiled."""
    optimizer = _optimizer_of(model)

    def step(batch: dict) -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bfloat16"):
            loss = loss_of(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach().clone()

    return step


def _optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    """Returns PyTorch's fused AdamW with BERT's weight decay."""
    undecayed = [p for n, p in model.named_parameters() if "bias" in n or "LayerNorm" in n]
    decayed = [p for p in model.parameters() if not any(p is k for k in undecayed)]
    return torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": undecayed, "weight_decay": 0.0}],
        lr=1e-4,
        fused=True,
    )
