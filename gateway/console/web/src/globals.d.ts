interface TrustedHTML {
  toString(): string;
}
