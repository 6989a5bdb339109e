"""The classifier behind one small interface: logits, logits from embeddings, hidden states.

Works for whatever `AutoModelForSequenceClassification` loads and has a mask token. Shapes: B rows, T tokens,
C labels, D width of the word embeddings, L layers. A batch is a dict of tensors with `input_ids` [B, T],
`attention_mask` [B, T] and, where the tokenizer yields them, `token_type_ids` [B, T].
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from fmm.data.labels import class_numbers, label_column, label_text
from fmm.data.matching import check_classes
from fmm.errors import FmmError
from fmm.models.families import replaced_embeddings
from fmm.models.first_token import FirstTokenShortcut

Batch = Mapping[str, Tensor]
Listener = Callable[[Batch, tuple[Tensor, ...]], None]

# Its attention mixes the formats of autocast and fails (transformers 5.24): computed in the weights' own format.
NO_AUTOCAST = frozenset({"deberta"})


def takes_token_types(model: Any) -> bool:
    """Whether the model tells the second text from the first by token types: RoBERTa-like models know one type only,
    and a tokenizer of another model may yield two."""
    known = getattr(model.config, "type_vocab_size", 2)
    return known >= 2 and "token_type_ids" in _arguments(type(model).forward)


@cache
def _arguments(forward: Callable[..., Any]) -> frozenset[str]:
    """Names of what a kind of model's forward pass takes; asked for at every pass."""
    return frozenset(inspect.signature(forward).parameters)


def call(model: Any, **inputs: Any) -> Any:
    """The model's output, outside of autocast where its kind cannot run within."""
    if "token_type_ids" in inputs and not takes_token_types(model):
        del inputs["token_type_ids"]
    if model.config.model_type not in NO_AUTOCAST:
        return model(**inputs)
    with torch.autocast(next(model.parameters()).device.type, enabled=False):
        return model(**inputs)


class Classifier(nn.Module):
    """A Hugging Face sequence classifier with a mask token.

    Args:
        model: a `...ForSequenceClassification` model.
        mask_id: id of the mask token.
        pad_id: id of the padding token; default: the model's.
        label_names: names of the C labels; default: the model's `id2label`.
        label_map: {label of your data: label of the model}, where the two differ; see `labels`.
        max_length: most tokens of one input (`load_classifier` finds it).

    >>> from transformers import BertConfig, BertForSequenceClassification
    >>> config = BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
    >>> classifier = Classifier(BertForSequenceClassification(config).eval(), mask_id=4)
    >>> classifier.logits({"input_ids": torch.tensor([[2, 7, 3]])}).shape
    torch.Size([1, 2])
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        mask_id: int,
        pad_id: int | None = None,
        label_names: Sequence[str] | None = None,
        label_map: Mapping[Any, Any] | None = None,
        max_length: int = 512,
    ) -> None:
        super().__init__()
        self.model: Any = model
        config: Any = model.config
        self.mask_id = mask_id
        self.pad_id: int = pad_id if pad_id is not None else (config.pad_token_id or 0)
        self.num_labels: int = config.num_labels
        names = label_names or [config.id2label[label] for label in range(config.num_labels)]
        if len(names) != config.num_labels:
            raise FmmError(
                f"{len(names)} label names were given for a model of {config.num_labels} labels; give one each"
            )
        self.label_names = list(names)
        check_classes(label_map, self.label_names, "the model")
        self.label_map = dict(label_map or {})
        self.max_length = max_length
        self.loading: dict[str, Any] | None = None  # what was read of its checkpoint, for a record
        self.token_budget: int | None = None  # tokens that fit in one pass, once memory has run out
        self._first_token = FirstTokenShortcut(model)
        self._root: tuple[object, Tensor] | None = None
        self._listener: Listener | None = None

    def labels(self, values: Sequence[Any]) -> Tensor:
        """Gold labels of your data as classes [N] int64, −1 for None: what `batch["labels"]` takes.

        A label is found by `label_map`, else by name. A number is that of a class only where the names hold no numbers
        and all numbers from 0 occur, so give all labels of your data at once. Raises FmmError, with a `label_map` that
        could be meant, for another.
        """
        cells = label_column(values).values
        names = {label_text(key): label_text(value) for key, value in self.label_map.items()}
        renamed = [None if cell is None else names.get(cell, cell) for cell in cells]
        explicit = set(names.values())
        return torch.from_numpy(class_numbers(renamed, self.label_names, "values", explicit))

    @property
    def device(self) -> torch.device:
        """Where the model's weights are."""
        return self.word_embeddings.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Number format of the model's weights."""
        return self.word_embeddings.weight.dtype

    @property
    def word_embeddings(self) -> nn.Embedding:
        """The table E [V, D] of word embeddings (V tokens), before position and LayerNorm."""
        return self.model.get_input_embeddings()

    def embed(self, input_ids: Tensor) -> Tensor:
        """Word embeddings [B, T, D] of token ids [B, T], in float32."""
        output = self.word_embeddings(input_ids)
        return (output[0] if isinstance(output, tuple) else output).float()

    def logits(self, batch: Batch) -> Tensor:
        """Logits [B, C] in float32. Differentiable."""
        with self._first_token.active(not self.model.training):
            return self._forward(batch).logits.float()

    def logits_from_embeddings(self, word_embeddings: Tensor, batch: Batch) -> Tensor:
        """Logits [B, C] in float32 where `word_embeddings` [B, T, D] stand in for the looked-up ones.

        They replace the output of the word-embedding layer, so that positions, token types, masks and everything
        else come from `batch` exactly as on the path from ids, in any architecture.
        """

        def replace(module: nn.Module, inputs: object, output: Any) -> Any:
            return replaced_embeddings(word_embeddings, output)

        options = {} if self._listener is None else {"output_hidden_states": True}
        with self._first_token.active(self._listener is None and not self.model.training):
            hook = self.word_embeddings.register_forward_hook(replace)
            try:
                output = self._forward(batch, **options)
            finally:
                hook.remove()
        if self._listener is not None:
            length = word_embeddings.shape[1]
            self._listener(batch, tuple(state[:, :length] for state in output.hidden_states))
        return output.logits.float()

    @contextmanager
    def handing_hidden_states_to(self, listener: Listener) -> Iterator[None]:
        """Within this block `logits_from_embeddings` computes all of every layer and hands (batch, states) over."""
        self._listener = listener
        try:
            yield
        finally:
            self._listener = None

    def logits_and_hidden_states(self, batch: Batch) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Logits [B, C] in float32, and the L + 1 hidden states [B, T, width], embedding output first."""
        output = self._forward(batch, output_hidden_states=True)
        length = batch["input_ids"].shape[1]  # some models pad a text within
        return output.logits.float(), tuple(state[:, :length] for state in output.hidden_states)

    def _forward(self, batch: Batch, **options: bool) -> Any:
        wanted = ("input_ids", "attention_mask", "token_type_ids")
        inputs = {key: batch[key] for key in wanted if batch.get(key) is not None}
        return call(self.model, **inputs, **options)

    def vocabulary_root(self) -> Tensor:
        """R [D, D] in float32 with ‖R g‖ = ‖E g‖ for every g: the square root of the Gram matrix EᵀE.

        Taken in float64 and kept until the embeddings change. The root, rather than the Gram matrix itself, keeps
        float32's relative precision where g lies across the few directions that dominate a trained E.
        """
        weight = self.word_embeddings.weight
        state = (weight.data_ptr(), weight.device, None if weight.is_inference() else weight._version)
        if self._root is None or self._root[0] != state:
            with torch.no_grad():
                gram = sum(rows.double().T @ rows.double() for rows in weight.detach().split(4096))
                values, vectors = torch.linalg.eigh(gram)
                self._root = state, (vectors * values.clamp(min=0).sqrt()).T.float().contiguous()
        return self._root[1]

    @contextmanager
    def explaining(self, gradients: bool = False) -> Iterator[None]:
        """Evaluation mode, weights without gradient, autograd as asked: also within inference mode. Then as before."""
        training = [module for module in self.modules() if module.training]
        learning = [weight for weight in self.parameters() if weight.requires_grad]
        try:
            for module in training:
                module.training = False
            for weight in learning:
                weight.requires_grad_(False)
            with torch.inference_mode(not gradients), torch.set_grad_enabled(gradients):
                yield
        finally:
            for module in training:
                module.training = True
            for weight in learning:
                weight.requires_grad_(True)


def load_classifier(
    folder_or_id: str,
    device: str | torch.device = "auto",
    dtype: torch.dtype = torch.float32,
    label_map: Mapping[Any, Any] | None = None,
) -> tuple[Classifier, Any]:
    """Load a trained classifier and its tokenizer from a folder or the Hugging Face hub.

    Args:
        folder_or_id: what `from_pretrained` takes.
        device: `auto` picks CUDA, then Apple's MPS, then the CPU.
        dtype: number format of the weights; differences of logits are always taken in float32.
        label_map: {label of your data: label of the model}, such as {0: "negative", 1: "positive"} or {"gut": "good"};
            `classifier.labels` and `fmm.attribute(target=)` read labels by it.

    Raises:
        FmmError: nothing is there, the checkpoint has no classification head, the tokenizer has no mask token, or a
            label of `label_map` is none of the model's.
    """
    from fmm.models import build  # seconds; `import fmm` stays light
    from fmm.models.weights import zero_embeddings

    name = str(folder_or_id)
    tokenizer = build.load_tokenizer(name)
    config = build.configuration(name)
    build.check_config(config, name)
    names = build.label_names(name)
    model, loading = build.read_trained(name, config, dtype, len(names))
    build.check_vocabulary(model, tokenizer, name)
    loading = replace(loading, zero_embeddings=zero_embeddings(model, tokenizer, name))
    for line in loading.said_of_encoder(name):
        print(line, flush=True)
    limit = build.max_tokens(model, tokenizer)
    classifier = Classifier(
        model,
        mask_id=tokenizer.mask_token_id,
        pad_id=tokenizer.pad_token_id,
        label_names=names,
        label_map=label_map,
        max_length=limit,
    )
    classifier.loading = loading.record()
    return classifier.requires_grad_(False).eval().to(best_device() if device == "auto" else device), tokenizer


def best_device() -> str:
    """CUDA where there is one, else Apple's MPS, else the CPU."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"
