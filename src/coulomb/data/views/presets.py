"""Views by kind of image. A preset is a function returning the complete specification."""

from collections.abc import Callable

from coulomb.data.views.spec import ViewSpec

IMAGENET_RATIO = (3 / 4, 4 / 3)


def natural() -> ViewSpec:
    """Photographs of about 64 pixels and more: SimCLR on ImageNet (Chen et al., 2020, appendix A), strength 1."""
    return ViewSpec(
        crop_area=(0.08, 1.0),
        crop_ratio=IMAGENET_RATIO,
        flip=0.5,
        jitter=0.8,
        brightness=0.8,
        contrast=0.8,
        saturation=0.8,
        hue=0.2,
        grey=0.2,
        blur=0.5,
        blur_sigma=(0.1, 2.0),
    )


def small_natural() -> ViewSpec:
    """Photographs of about 32 pixels: SimCLR on CIFAR-10 (Chen et al., 2020, appendix B.9), strength .5, no blur.

    One departure: crops keep at least .2 of the area (paper: .08), because 8% of 32×32 is a patch of 9×9 pixels;
    ``crop_area=(.08, 1)`` restores the paper's.
    """
    return ViewSpec(
        crop_area=(0.2, 1.0),
        crop_ratio=IMAGENET_RATIO,
        flip=0.5,
        jitter=0.8,
        brightness=0.4,
        contrast=0.4,
        saturation=0.4,
        hue=0.1,
        grey=0.2,
    )


def digits() -> ViewSpec:
    """Digits, letters and documents: never mirrored; a small affine map, a mild elastic warp, light and noise that vary.

    Black lies outside the image; for dark ink on white paper choose ``padding="border"``. Strengths are this library's
    own, measured on handwritten digits (LOG.md): without the changes of brightness, noise, blur and cutout an encoder
    tells images apart by how bright they are, and learns no shapes.
    """
    return ViewSpec(
        affine=1.0,
        rotate=15.0,
        translate=0.1,
        zoom=(0.8, 1.2),
        shear=10.0,
        elastic=0.8,
        elastic_amplitude=0.08,
        padding="zeros",
        jitter=1.0,
        brightness=0.6,
        contrast=0.6,
        blur=0.5,
        blur_sigma=(0.3, 1.2),
        noise=1.0,
        noise_std=(0.0, 0.15),
        cutout=0.5,
    )


def single_channel() -> ViewSpec:
    """Grey-scale photographs, microscopy, medical pictures: intensity may carry meaning, so it changes less.

    ``flip_vertical=.5`` and ``rotate=180`` (with ``affine=1``) suit pictures without an up. Strengths are this
    library's own.
    """
    return ViewSpec(
        crop_area=(0.2, 1.0),
        crop_ratio=IMAGENET_RATIO,
        flip=0.5,
        jitter=0.8,
        brightness=0.4,
        contrast=0.4,
        blur=0.5,
        blur_sigma=(0.1, 1.0),
        noise=0.5,
        noise_std=(0.0, 0.05),
    )


PRESETS: dict[str, Callable[[], ViewSpec]] = {
    "natural": natural,
    "small-natural": small_natural,
    "digits": digits,
    "documents": digits,
    "single-channel": single_channel,
}
