"""Learns a WordPiece vocabulary with TensorFlow Text's generator, which CMLM §4.4 names."""

from collections import Counter
from collections.abc import Iterable

from .wordpiece import SPECIAL_TOKENS, check_alphabet, make_splitter

# Characters of the longest word that is learned from, the generator's own default. Its memory and
# time grow with the square of a word's length.
_LONGEST_WORD = 50


def learn_top_down(
    paragraphs: Iterable[str], vocab_size: int, lower_case: bool, min_frequency: int
) -> list[str]:
    """Learns a WordPiece vocabulary of the words that `learn_wordpiece` splits the text into.

    The generator counts the substrings of all words and keeps those that occur at least as often
    as a threshold; it repeats this with the substrings that begin where an entry begins, and
    bisects for the threshold. The same words always give the same entries.

    Args:
      paragraphs: the text; read once. Counts of its words stay in memory.
      vocab_size: most entries, the special tokens included. The generator is content with 95 % of
        them; where it yields too many, the rarest pieces are left out here.
      lower_case: whether to lower-case and to strip accents, before all else.
      min_frequency: the least threshold.

    Returns:
      The special tokens, the characters, then the characters within words and longer pieces, the
      most frequent first.

    Raises:
      UserError: no text, or a vocabulary too small for its characters.
    """
    from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib as generator

    normalizer, splitter = make_splitter(lower_case)
    words: Counter[str] = Counter()
    for paragraph in paragraphs:
        line = " ".join(paragraph.split()).encode(errors="replace").decode()
        for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(line)):
            if len(word) <= _LONGEST_WORD:
                words[word] += 1
    characters = {character for word in words for character in word}
    alphabet = characters | {f"##{character}" for character in characters}
    check_alphabet(len(alphabet), vocab_size)
    entries = generator.learn(
        words,
        vocab_size,
        list(SPECIAL_TOKENS),
        lower_thresh=min_frequency,
        max_token_length=_LONGEST_WORD,
        # Every character has an entry, as it has by `learn_wordpiece`; the default is 1000.
        max_unique_chars=len(characters),
    )
    pieces = [entry for entry in entries[len(SPECIAL_TOKENS) :] if entry not in alphabet]
    rarest = set(pieces[vocab_size - len(SPECIAL_TOKENS) - len(alphabet) :])
    return [entry for entry in entries if entry not in rarest]
