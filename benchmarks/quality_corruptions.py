"""Imitates the boilerplate of web pages: pure functions that corrupt running text.

Every function takes a paragraph of running text, its language and a random number generator, and
returns paragraphs that a filter should drop. The phrases are written for this purpose.
"""

import random
from collections.abc import Callable

# Of each language every fourth is kept for measuring, where a filter that has learned phrases by
# heart gains nothing.
_BOILERPLATE = {
    "en": (
        "Sign up for our newsletter and never miss a story.",
        "Subscribe today and get the first month free.",
        "All rights reserved. No part of this site may be copied.",
        "© 2024 The Publisher. Reproduction only with written permission.",
        "We use cookies to make this site work better for you.",
        "By continuing to browse you agree to our cookie settings.",
        "Share this page on social media or send it by e-mail.",
        "Like this? Tell your friends and follow us for more.",
        "You must be logged in to leave a comment.",
        "Please enter your user name and password to continue.",
        "Free delivery on orders over 50. Returns within 30 days.",
        "Add to basket. In stock, ships within two working days.",
        "Click here to see more results like this one.",
        "Your browser is out of date; please update it to view this page.",
        "Posted by admin on Monday, 0 comments, 112 views.",
        "Last updated 3 days ago, 5 min read, filed under News.",
        "Create a free account to save your favourites.",
        "Forgot your password? We will send you a new one.",
        "Download our app for iPhone and Android.",
        "Advertisement. Scroll down to read on.",
        "Read more about this topic in our archive.",
        "Related articles you may also like.",
        "Contact us by phone or fill in the form below.",
        "Terms and conditions apply. Prices include tax.",
        "Skip to main content. Back to top of page.",
        "This site needs JavaScript. Please turn it on in your browser.",
        "Rate this product: be the first to write a review.",
        "Search results: page 1 of 24, next, last.",
        "Home, about us, careers, press, site map, imprint.",
        "Enter your postcode to find a shop near you.",
        "Watch the video and leave your comments below.",
        "Customers who bought this item also bought these.",
    ),
    "de": (
        "Melden Sie sich für unseren Newsletter an und verpassen Sie nichts.",
        "Jetzt abonnieren und den ersten Monat gratis lesen.",
        "Alle Rechte vorbehalten. Nachdruck nur mit Genehmigung.",
        "© 2024 Der Verlag. Vervielfältigung nicht gestattet.",
        "Wir verwenden Cookies, um diese Seite für Sie zu verbessern.",
        "Mit der weiteren Nutzung stimmen Sie den Cookie-Einstellungen zu.",
        "Teilen Sie diese Seite oder senden Sie sie per E-Mail weiter.",
        "Gefällt Ihnen das? Folgen Sie uns für mehr.",
        "Sie müssen angemeldet sein, um einen Kommentar zu schreiben.",
        "Bitte geben Sie Benutzernamen und Passwort ein.",
        "Kostenloser Versand ab 50 Euro. Rückgabe innerhalb von 30 Tagen.",
        "In den Warenkorb. Auf Lager, Lieferung in zwei Werktagen.",
        "Klicken Sie hier, um weitere Treffer zu sehen.",
        "Ihr Browser ist veraltet; bitte aktualisieren Sie ihn.",
        "Eingestellt von admin am Montag, 0 Kommentare, 112 Aufrufe.",
        "Zuletzt aktualisiert vor 3 Tagen, 5 Min. Lesezeit, Rubrik Aktuelles.",
        "Legen Sie ein kostenloses Konto an und merken Sie sich Artikel.",
        "Passwort vergessen? Wir senden Ihnen ein neues zu.",
        "Laden Sie unsere App für iPhone und Android herunter.",
        "Anzeige. Lesen Sie unten weiter.",
        "Mehr zu diesem Thema finden Sie in unserem Archiv.",
        "Ähnliche Artikel, die Sie interessieren könnten.",
        "Rufen Sie uns an oder nutzen Sie das Kontaktformular.",
        "Es gelten die Geschäftsbedingungen. Preise inklusive Steuer.",
        "Zum Inhalt springen. Zurück zum Seitenanfang.",
        "Diese Seite benötigt JavaScript. Bitte schalten Sie es im Browser ein.",
        "Bewerten Sie dieses Produkt: schreiben Sie die erste Rezension.",
        "Suchergebnisse: Seite 1 von 24, weiter, letzte.",
        "Startseite, über uns, Karriere, Presse, Übersicht, Impressum.",
        "Postleitzahl eingeben und Geschäft in der Nähe finden.",
        "Sehen Sie das Video und schreiben Sie unten Ihre Kommentare.",
        "Kunden, die diesen Artikel gekauft haben, kauften auch diese.",
    ),
    "fr": (
        "Inscrivez-vous à notre lettre d'information et ne manquez rien.",
        "Abonnez-vous aujourd'hui, le premier mois est offert.",
        "Tous droits réservés. Reproduction interdite sans autorisation.",
        "© 2024 L'éditeur. Copie soumise à un accord écrit.",
        "Nous utilisons des cookies pour améliorer ce site.",
        "En poursuivant votre visite, vous acceptez nos réglages de cookies.",
        "Partagez cette page ou envoyez-la par courriel.",
        "Cela vous plaît ? Suivez-nous pour en savoir plus.",
        "Vous devez être connecté pour laisser un commentaire.",
        "Veuillez saisir votre identifiant et votre mot de passe.",
        "Livraison gratuite dès 50 euros. Retours sous 30 jours.",
        "Ajouter au panier. En stock, expédié sous deux jours ouvrés.",
        "Cliquez ici pour voir d'autres résultats.",
        "Votre navigateur est trop ancien ; mettez-le à jour.",
        "Publié par admin lundi, 0 commentaire, 112 vues.",
        "Mis à jour il y a 3 jours, lecture de 5 min, rubrique Actualités.",
        "Créez un compte gratuit pour garder vos articles favoris.",
        "Mot de passe oublié ? Nous vous en envoyons un nouveau.",
        "Téléchargez notre application pour iPhone et Android.",
        "Publicité. La suite de l'article est plus bas.",
        "Lire la suite dans les archives de notre site.",
        "Articles similaires qui pourraient vous plaire.",
        "Contactez-nous par téléphone ou avec le formulaire ci-dessous.",
        "Conditions générales de vente. Prix toutes taxes comprises.",
        "Aller au contenu. Retour en haut de la page.",
        "Ce site a besoin de JavaScript. Veuillez l'activer dans votre navigateur.",
        "Notez ce produit : soyez le premier à donner votre avis.",
        "Résultats de la recherche : page 1 sur 24, suivante, dernière.",
        "Accueil, qui sommes-nous, emplois, presse, plan du site, mentions légales.",
        "Saisissez votre code postal pour trouver un magasin près de chez vous.",
        "Regardez la vidéo et laissez vos commentaires ci-dessous.",
        "Les clients qui ont acheté cet article ont aussi acheté ceux-ci.",
    ),
}
_SEPARATORS = (" | ", " › ", " · ", " – ", " » ", " / ")

Corruption = Callable[[str, str, random.Random], list[str]]


def shuffled(text: str, language: str, rng: random.Random) -> list[str]:
    """The same words in any order; the last still ends like a sentence."""
    del language
    words = text.split()
    last = words.pop()
    rng.shuffle(words)
    return [" ".join([*words, last])]


def truncated(text: str, language: str, rng: random.Random) -> list[str]:
    """The beginning, cut off in the middle of a word or with an ellipsis, as teasers are."""
    del language
    cut = text[: rng.randint(len(text) // 4, len(text) * 3 // 4)].rstrip(" .,;:!?")
    return [cut + rng.choice(["", "", "…", "...", " [...]"])]


def boilerplated(text: str, language: str, rng: random.Random) -> list[str]:
    """Some words of the text among notices to visitors, more of these than of those."""
    return _among(_phrases(language, held_out=False), text, rng)


def newly_boilerplated(text: str, language: str, rng: random.Random) -> list[str]:
    """The same with other notices, which are in none of `boilerplated`."""
    return _among(_phrases(language, held_out=True), text, rng)


def _phrases(language: str, held_out: bool) -> list[str]:
    return [text for at, text in enumerate(_BOILERPLATE[language]) if (at % 4 == 3) == held_out]


def _among(phrases: list[str], text: str, rng: random.Random) -> list[str]:
    words = text.split()
    count = rng.randint(4, 12)
    start = rng.randrange(max(1, len(words) - count))
    excerpt = " ".join(words[start : start + count]).capitalize() + "."
    lines = [*rng.sample(phrases, rng.randint(3, 5)), excerpt]
    rng.shuffle(lines)
    return lines if rng.random() < 0.5 else [" ".join(lines)]


def navigation(text: str, language: str, rng: random.Random) -> list[str]:
    """Menus: one to three words each, capitalised, on lines of their own or between signs."""
    del language
    words = [word.strip(".,;:!?\"'»«()—-_") for word in text.split()]
    words = [word for word in words if len(word) > 3]
    items = []
    while words:
        count = rng.randint(1, 3)
        item, words = " ".join(words[:count]), words[count:]
        items.append(item.capitalize() if rng.random() < 0.5 else item.title())
    items = items[: rng.randint(8, 20)]
    if rng.random() < 0.5:
        return [rng.choice(_SEPARATORS).join(items)]
    return items


CORRUPTIONS: dict[str, Corruption] = {
    "shuffled": shuffled,
    "truncated": truncated,
    "boilerplated": boilerplated,
    "navigation": navigation,
}
# Never learned from.
UNSEEN: dict[str, Corruption] = {"newly boilerplated": newly_boilerplated}
