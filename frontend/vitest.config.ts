import { defineConfig } from "vitest/config";

export default defineConfig({
  // Golden vectors are beside the Python tests, which hold them too.
  server: { fs: { allow: ["..", "."] } },
  // Other tests have the cores as well: a test of a second may take twenty.
  test: { environment: "jsdom", include: ["tests/**/*.test.ts"], testTimeout: 60_000 },
});
